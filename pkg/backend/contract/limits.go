package contract

import "time"

// Bounds (I6).
const (
	checkTimeout   = 4 * time.Minute      // of one check: a call that never returns is an error, not a hang
	busyPause      = 2 * time.Millisecond // before a call that was refused with ErrBusy is made again
	atOnce         = 5                    // the same call, at the same time
	defaultCalls   = 1500                 // of a random sequence
	restartEvery   = 300                  // calls of a random sequence
	crashShare     = 3                    // a random sequence with crashes is that much shorter
	stoppedTimeout = time.Second          // for a call that was stopped for good, at the end of its test
	maxPages       = 1000                 // of one list
)
