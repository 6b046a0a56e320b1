package tunable

import "time"

// The ranges of values (I6).
const (
	maxMergeDeadline = 100 * time.Millisecond // pkg/merge, as the kernel's
	maxPolling       = time.Millisecond       // pkg/poll

	minPathTimeout    = time.Second
	maxPathTimeout    = 5 * time.Minute
	minCommandTimeout = time.Second
	maxCommandTimeout = 10 * time.Minute
	minFenceTimeout   = time.Second
	maxFenceTimeout   = time.Hour
	minKeepAlive      = 100 * time.Millisecond // NVMe counts in steps of that
	maxKeepAlive      = time.Minute
	maxNoPathTimeout  = 24 * time.Hour
	maxFailback       = 24 * time.Hour
	maxShutdown       = 10 * time.Minute

	maxPaths      = 32 // pkg/pathsel
	maxLanes      = 16
	maxQueueDepth = 4096
	maxSessions   = 8

	maxSource = 64  // bytes of one source: an address or an interface's name
	maxValue  = 512 // bytes of one value
)
