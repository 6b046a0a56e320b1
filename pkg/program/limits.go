package program

import "time"

// The limits of this package.
const (
	// MaxRunning bounds the programs of this process that run, or hang, at a time.
	MaxRunning = 256
	// MaxOutput is what a program may print, bytes; Call.Output asks for more.
	MaxOutput = 1 << 20
	// maxMessage is what is kept of its error output, bytes.
	maxMessage = 4 << 10
	// reapWithin is how long a killed program may take to be gone. One that waits
	// in the kernel for a device takes longer, and is left behind.
	reapWithin = 500 * time.Millisecond
	// pipesWithin is how long what a program started may hold its output open.
	pipesWithin = time.Second
)
