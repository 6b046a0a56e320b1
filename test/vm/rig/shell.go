// Package rig is what the tests in the virtual machine start: targets, the
// product, commands; and what they look at: nbd devices, processes, memory.
package rig

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Sh runs a shell script under set -eu and returns what it printed, both
// streams. A failure ends the test, with the output.
func Sh(t testing.TB, script string) string {
	t.Helper()
	out, err := Try(script)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Try is Sh for scripts that may fail.
func Try(script string) (string, error) {
	cmd := exec.Command("sh", "-euc", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = killGrace
	if err := cmd.Start(); err != nil {
		return "", err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	limit := time.NewTimer(commandWithin)
	defer limit.Stop()
	select {
	case err := <-done:
		if err != nil {
			err = fmt.Errorf("%s: %w: %s", script, err, tail(out.String()))
		}
		return out.String(), err
	case <-limit.C:
		return "", fmt.Errorf("%s: not done within %v; %s", script, commandWithin, end(cmd.Process.Pid, done))
	}
}

// end kills a group of processes and says where the kernel keeps those that
// cannot be killed.
func end(pid int, done <-chan error) string {
	var where []string
	for _, p := range append([]int{pid}, descendants(pid)...) {
		where = append(where, fmt.Sprintf("process %d (%s) is in %s", p, comm(p), kernelStack(p)))
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	grace := time.NewTimer(killGrace)
	defer grace.Stop()
	select {
	case err := <-done:
		return fmt.Sprint("killed: ", err, "; ", strings.Join(where, "; "))
	case <-grace.C:
		return "it cannot be killed; " + strings.Join(where, "; ")
	}
}

func comm(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(b))
}

func kernelStack(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stack", pid))
	if len(b) == 0 {
		return "user space"
	}
	return strings.Join(strings.Fields(string(b)), " ")
}

func tail(s string) string {
	return strings.TrimSpace(s[max(0, len(s)-maxOutput):])
}

// Modprobe loads kernel modules, each "name" or "name param=value". The ones
// every package needs belong into vmrun's -mods, which is quicker.
func Modprobe(t testing.TB, modules ...string) {
	t.Helper()
	for _, m := range modules {
		Sh(t, "modprobe "+m)
	}
}
