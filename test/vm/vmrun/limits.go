package main

import "time"

// Limits and times of vmrun.
const (
	afterTestTimeout = 45 * time.Second // boot, and the test binary's own last words
	noTestTimeout    = 10 * time.Minute // for programs that are no tests
	guestEarlier     = 20 * time.Second // vminit gives up before vmrun does, to log what hangs
	fetchWithin      = 10 * time.Minute // one call of apt-get, dpkg or depmod
	sweepAfter       = time.Hour        // a run's folder without a lock is somebody's who was killed
	logTail          = 60               // lines of the kernel's log on failure
	maxLog           = 64 << 20         // bytes read of it
	maxModulesLine   = 1 << 20          // bytes of one line of depmod's files
	tbSizeMiB        = 256              // qemu's translated code
	maxBoots         = 3                // of a machine whose clock may be wrong
	bootWithin       = time.Minute      // the kernel has measured its clock by then
	bootLook         = 200 * time.Millisecond
	bootLog          = 64 << 10 // bytes of the kernel's log until then
)

// fetchPauses are the waits before each attempt to download a kernel.
var fetchPauses = []time.Duration{0, 0, 5 * time.Second, 30 * time.Second, time.Minute}
