package kernel

import "time"

// The limits of this package.
const (
	// MaxConnections is how many connections one device may have.
	MaxConnections = 16
	// MaxBackend is the length of a backend identifier, bytes.
	MaxBackend = 256
	// MaxCalls is how many calls to the kernel may hang at a time; further ones
	// are refused.
	MaxCalls = 64
	// MaxSectorsKB is the largest request that may be asked for, KiB: what the
	// server takes (proto.MaxPayload).
	MaxSectorsKB = 32 << 10

	// The defaults of Options.
	defaultSectorsKB   = 1024
	defaultIOTimeout   = 2 * time.Second
	defaultDeadTimeout = 24 * time.Hour
	defaultDirtyRatio  = 20 // percent

	maxIndex      = 1<<20 - 1 // of a device: the kernel's minors
	maxDevices    = 1 << 16   // in one answer to STATUS
	maxAttribute  = 4096      // bytes of a sysfs file
	firstPoll     = 5 * time.Millisecond
	lastPoll      = 250 * time.Millisecond
	cutAfter      = 2 * time.Second  // a disconnect that hangs so long gets its connections cut
	idleWithin    = 2 * time.Second  // until a device that others serve has no request in flight
	minDepth      = 4                // of the kernel's queue
	maxDepth      = 128              // of the kernel's queue for one connection
	offerWithin   = 10 * time.Second // a call that gives a connection; no process is forked meanwhile
	cleanupWithin = 10 * time.Second
	eventBuffer   = 1 << 20 // bytes of LINK_DEAD events that may wait
)
