package rig

import "time"

// Bounds of what the rig waits for. The machine is emulated, often on a busy
// host: they are many times what is usual.
const (
	// Patience bounds each wait for something that must come in the end.
	Patience  = 3 * time.Minute
	pollEvery = 200 * time.Millisecond

	commandWithin = 3 * time.Minute  // one shell command
	stopWithin    = 90 * time.Second // from SIGTERM until the product has ended
	killGrace     = 5 * time.Second  // from SIGKILL until a process is gone, unless the kernel keeps it
	deviceWithin  = time.Minute      // until a device is there or gone
	maxOutput     = 16 << 10         // bytes of a command's output in an error
	lineWithin    = 2 * time.Minute  // until the product prints a line
	maxLine       = 8 << 10          // bytes of a line
	maxLines      = 4000             // lines of the product that are kept
	maxDescent    = 8                // generations of processes
)
