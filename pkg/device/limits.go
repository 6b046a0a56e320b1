package device

import "time"

// Every limit and default of this package.
const (
	// DefaultPathTimeout and the others are DESIGN's StorageClass defaults.
	DefaultPathTimeout    = 5 * time.Second
	DefaultCommandTimeout = 30 * time.Second
	DefaultFenceTimeout   = 15 * time.Second
	DefaultQueueDepth     = 128

	// maxRedirects bounds the hops of one login.
	maxRedirects = 4
	// connectTimeout bounds one TCP connect.
	connectTimeout = 5 * time.Second
	// loginTimeout bounds one login.
	loginTimeout = 10 * time.Second
	// abortGrace is how long a retired session may take to hand its commands back.
	statusTimeout = time.Second
	// maxISIDs bounds the ISID file.
	maxISIDs = 65536
	// maxStateFile bounds a file of ours that is read back, bytes.
	maxStateFile = 16 << 20
	// maxStatus bounds one status answer, bytes.
	maxStatus = 4 << 20
)
