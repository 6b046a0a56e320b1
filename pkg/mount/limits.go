package mount

import "time"

// The limits of this package.
const (
	// MaxVolume is the longest name of a volume, bytes.
	MaxVolume = 256
	// MaxPath is the longest path, bytes.
	MaxPath = 4095
	// MaxOptions is how many options, and MaxOption how many bytes each, mkfs or
	// mount may be given.
	MaxOptions = 64
	MaxOption  = 1024
	// MaxHanging is how many devices may have a call that hangs.
	MaxHanging = 1024
	// maxLayers is how many mounts on top of each other are taken away.
	maxLayers = 16
	// unmountWithin is how long an unmount may take before it becomes a lazy one,
	// which leaves the writing of what is dirty to the device's return.
	unmountWithin = 5 * time.Second
	// maxMessages is how many lines of a checker are kept, maxMessage how many bytes
	// of each.
	maxMessages = 20
	maxMessage  = 300
	// statsWithin is how long statistics may take, whatever the caller grants.
	statsWithin = 500 * time.Millisecond
)
