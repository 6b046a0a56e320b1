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
	// loginMin is the least time one TCP connect, and one login, may take; above
	// it the path timeout is the bound: a portal that does not answer a login for
	// so long is as dead as a session that does not answer.
	loginMin = 2 * time.Second
	// statusTimeout bounds one answer on a status socket.
	statusTimeout = time.Second
	// maxISIDs bounds the ISID file.
	maxISIDs = 65536
	// maxStateFile bounds a file of ours that is read back, bytes.
	maxStateFile = 16 << 20
	// maxRequest bounds one request on a control socket, bytes.
	maxRequest = 4096
	// maxRequests bounds the connections on one control socket served at once.
	maxRequests = 8
	// maxStatus bounds one status answer, bytes.
	maxStatus = 4 << 20
)
