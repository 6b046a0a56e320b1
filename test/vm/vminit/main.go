// Command vminit is process 1 of the virtual machine that vmrun starts. It
// loads the kernel modules, makes the host's files the root (read-only, with an
// overlay in memory), runs one program, and tells its exit code over a serial
// port.
//
// What it prints goes to the console, that is, into the kernel's log file.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/test/vm/spec"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "vminit: this is the first process of a virtual machine; run vmrun")
		os.Exit(2)
	}
	runtime.LockOSThread()
	exit, err := openTTY(spec.ExitTTY)
	if err != nil {
		fmt.Fprintln(os.Stderr, "vminit:", err)
		reset()
	}
	o, err := run()
	if err != nil {
		o.Why = err.Error()
	}
	fmt.Fprint(os.Stderr, "vminit: ", o)
	if _, err := exit.WriteString(o.String()); err != nil {
		fmt.Fprintln(os.Stderr, "vminit: exit code not told:", err)
	}
	drain(exit)
	reset()
}

func run() (spec.Outcome, error) {
	b, err := os.ReadFile("/" + spec.File)
	if err != nil {
		return spec.Outcome{}, err
	}
	var s spec.Spec
	if err := json.Unmarshal(b, &s); err != nil {
		return spec.Outcome{}, fmt.Errorf("%s: %w", spec.File, err)
	}
	out, err := openTTY(spec.OutTTY)
	if err != nil {
		return spec.Outcome{}, err
	}
	if err := prepare(&s); err != nil {
		return spec.Outcome{}, err
	}
	defer drain(out)
	return supervise(&s, out)
}

// supervise starts the program and reaps, as process 1 must, every orphan until
// the program itself has ended.
func supervise(s *spec.Spec, out *os.File) (spec.Outcome, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return spec.Outcome{}, err
	}
	if err := os.Chdir(s.Dir); err != nil {
		return spec.Outcome{}, err
	}
	pid, err := syscall.ForkExec(s.Args[0], s.Args, &syscall.ProcAttr{
		Env: s.Env, Files: []uintptr{null.Fd(), out.Fd(), out.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return spec.Outcome{}, fmt.Errorf("start %s: %w", s.Args[0], err)
	}
	ended := make(chan syscall.WaitStatus, 1)
	go func() { ended <- reapUntil(pid) }()
	select {
	case st := <-ended:
		if st.Signaled() {
			return spec.Outcome{Code: 128 + int(st.Signal())}, nil
		}
		return spec.Outcome{Code: st.ExitStatus()}, nil
	case <-time.After(s.Limit - sinceBoot()):
		// w: the tasks that are blocked. m: memory.
		for _, key := range []string{"m", "w"} {
			_ = os.WriteFile("/proc/sysrq-trigger", []byte(key), 0)
		}
		return spec.Outcome{}, fmt.Errorf("timeout: not done %v after boot; blocked tasks are in the kernel's log", s.Limit)
	}
}

func reapUntil(pid int) syscall.WaitStatus {
	for {
		var st syscall.WaitStatus
		got, err := syscall.Wait4(-1, &st, 0, nil)
		if err == nil && got == pid {
			return st
		}
	}
}

func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// reset ends the machine at once: qemu runs with -no-reboot. The orderly way
// would wait for devices, and a device that hangs is what some tests are about.
func reset() {
	_ = os.WriteFile("/proc/sysrq-trigger", []byte("b"), 0)
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	select {}
}
