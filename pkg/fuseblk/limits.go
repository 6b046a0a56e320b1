package fuseblk

import "time"

// The limits of this package.
const (
	// Depth is how many requests of one device are outstanding; more wait here, and
	// behind them in the kernel.
	Depth = 64
	// MaxRequest is the largest read or write, bytes.
	MaxRequest = 1 << 20
	// maxRange is the largest range that is cleared at once, bytes: a longer one is
	// several.
	maxRange = 1 << 30
	// maxTries is how many free loop devices are tried: others look for one, too.
	maxTries = 64
	// maxStale is how many mounts on top of each other are taken away at start.
	maxStale = 16
	// goneCheck is how often a loop device that is being released is looked at.
	goneCheck = 10 * time.Millisecond
)
