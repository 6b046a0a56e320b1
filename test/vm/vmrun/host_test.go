//go:build vmhost

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// result is what vmrun did with a shell script.
type result struct {
	code   int
	stdout string
	stderr string
}

// command is vmrun with a small machine; XDG_CACHE_HOME stays as it is, the
// kernel is in there.
func command(t *testing.T, flags []string, script string) *exec.Cmd {
	t.Helper()
	bin, kernel := os.Getenv("CSI_MPATH_VMRUN"), os.Getenv("CSI_MPATH_VM_KERNEL")
	if bin == "" || kernel == "" {
		t.Fatal("CSI_MPATH_VMRUN and CSI_MPATH_VM_KERNEL are not set: run make vm-test")
	}
	args := append([]string{"-k", kernel, "-m", "512", "-smp", "1", "-timeout", "4m"}, flags...)
	return exec.CommandContext(t.Context(), bin, append(args, "sh", "-c", script)...)
}

func vm(t *testing.T, flags []string, script string) result {
	t.Helper()
	cmd := command(t, flags, script)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func TestTheProgramsExitCodeAndOutputComeOut(t *testing.T) {
	r := vm(t, nil, "(trap '' HUP; exec cat /dev/zero >/dev/null) & printf 'a\\tb\\nc'; exit 3")
	if r.code != 3 || r.stdout != "a\tb\nc" || r.stderr != "" {
		t.Fatalf("got %+v", r)
	}
}

func TestAProgramThatASignalEndsIsAFailure(t *testing.T) {
	if r := vm(t, nil, "kill -9 $$"); r.code != 128+9 {
		t.Fatalf("got %+v", r)
	}
}

func TestWritesReachTheHostOnlyInSharedFolders(t *testing.T) {
	open, closed := t.TempDir(), t.TempDir()
	r := vm(t, []string{"-rw", open}, "echo x >"+open+"/f && echo x >"+closed+"/f && cat "+closed+"/f")
	if r.code != 0 || r.stdout != "x\n" {
		t.Fatalf("got %+v", r)
	}
	if b, err := os.ReadFile(filepath.Join(open, "f")); err != nil || string(b) != "x\n" {
		t.Errorf("the shared folder has %q, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(closed, "f")); !os.IsNotExist(err) {
		t.Errorf("the other folder has it, too: %v", err)
	}
}

func TestAPanicIs125WithTheLogsEnd(t *testing.T) {
	logs := t.TempDir()
	r := vm(t, []string{"-logdir", logs}, "echo c >/proc/sysrq-trigger; exit 0")
	if r.code != exitMachine || !strings.Contains(r.stderr, "sysrq triggered crash") {
		t.Fatalf("got %+v", r)
	}
	all, err := filepath.Glob(logs + "/*.log")
	if err != nil || len(all) != 1 {
		t.Fatalf("kept logs: %v, %v", all, err)
	}
}

func TestAHangIs125AndNamesWhatIsBlocked(t *testing.T) {
	r := vm(t, []string{"-timeout", "50s"}, "tail -f /dev/null")
	if r.code != exitMachine || !strings.Contains(r.stderr, "timeout") || !strings.Contains(r.stderr, "Show Blocked State") {
		t.Fatalf("got %+v", r)
	}
}

func TestAMachineThatSaysNothingIsEndedFromOutside(t *testing.T) {
	r := vm(t, []string{"-timeout", "2s"}, "exit 0")
	if r.code != exitMachine || !strings.Contains(r.stderr, "timeout: not done within 2s") {
		t.Fatalf("got %+v", r)
	}
}

func TestNothingIsLeftWhenVmrunIsKilled(t *testing.T) {
	cmd := command(t, nil, "tail -f /dev/null")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	machine := 0
	poll(t, func() bool {
		machine = childOf(cmd.Process.Pid)
		return machine != 0
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	poll(t, func() bool { return errors.Is(syscall.Kill(machine, 0), syscall.ESRCH) })
	// The next run removes the folder of the one that was killed.
	if r := vm(t, []string{"-timeout", "2s"}, "exit 0"); r.code != exitMachine {
		t.Fatalf("got %+v", r)
	}
	c, err := openCache()
	if err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob(filepath.Join(c.dir, "run", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range all {
		if unlock, err := lock(filepath.Join(dir, "lock"), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			unlock()
			t.Errorf("%s is left, and nobody's", dir)
		}
	}
}

// poll waits for a condition that nobody announces.
func poll(t *testing.T, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("waited 20 s in vain")
		}
	}
}

// childOf is a child of a process that is another program already, 0 for none.
func childOf(pid int) int {
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(pid), "qemu").Output()
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.Fields(string(out))[0])
	return n
}
