package bench

import (
	"syscall"
	"time"
)

// usage is what the process has used up so far.
type usage struct {
	cpu       time.Duration
	voluntary int64 // context switches because a thread waited
}

func usageNow() usage {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return usage{}
	}
	return usage{cpu: time.Duration(u.Utime.Nano() + u.Stime.Nano()), voluntary: u.Nvcsw}
}
