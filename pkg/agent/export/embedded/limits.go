package embedded

import "time"

// Bounds (I6).
const (
	// maxPortals bounds the portals of an exporter.
	maxPortals = 16
	// maxExports bounds the volumes it serves: each may hold a file descriptor.
	maxExports = 8192
	// maxAccess bounds the initiators of one volume.
	maxAccess = 256
	// maxISCSIName is the longest iSCSI name, bytes (RFC 7143 4.2.7.1).
	maxISCSIName = 223

	// listenTime is how long New waits for a listening address that another
	// process, most likely the one before this, still has; it looks every
	// listenPause.
	listenTime  = 15 * time.Second
	listenPause = 50 * time.Millisecond

	// closeTime is how long Close waits for what a store holds up.
	closeTime = 20 * time.Second
)
