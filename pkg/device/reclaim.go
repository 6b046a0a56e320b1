package device

import (
	"fmt"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// A process that the kernel writes dirty pages through must never wait for the
// kernel to write dirty pages. These settings keep it from that; each may be
// refused for want of a capability, and then the warning says what it costs.

// goHeapLimit is what the garbage collector aims to stay below, bytes. Buffers
// are mapped outside the Go heap.
const goHeapLimit = 256 << 20

// FlushForReclaim marks the calling thread, and every thread and process it
// starts from now on, as one that memory reclaim may depend on
// (PR_SET_IO_FLUSHER, Linux 5.6): its allocations do not wait for block I/O.
// Call it on a locked thread before the worker is started.
func FlushForReclaim() error {
	if err := unix.Prctl(unix.PR_SET_IO_FLUSHER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_IO_FLUSHER: %w: writing back this device's own dirty pages may stall under memory pressure (needs CAP_SYS_RESOURCE)", err)
	}
	return nil
}

// HoldMemory keeps the process out of reclaim's way: its memory is locked as it
// is touched, the garbage collector is bounded, and the OOM killer looks
// elsewhere first.
func HoldMemory() (warnings []error) {
	debug.SetMemoryLimit(goHeapLimit)
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		warnings = append(warnings, fmt.Errorf("mlockall: %w: memory may be swapped out under pressure (needs CAP_IPC_LOCK)", err))
	}
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("-999"), 0); err != nil {
		warnings = append(warnings, fmt.Errorf("oom_score_adj: %w: the OOM killer may choose this process", err))
	}
	return warnings
}
