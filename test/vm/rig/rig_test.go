package rig

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestAScriptsOutputIsInItsError(t *testing.T) {
	if out := Sh(t, "echo a; echo b >&2"); out != "a\nb\n" {
		t.Errorf("got %q", out)
	}
	out, err := Try("echo before; false; echo after")
	if err == nil || !strings.Contains(err.Error(), "before") || strings.Contains(out, "after") {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestChildrenOfChildrenAreFound(t *testing.T) {
	cmd := exec.Command("sh", "-c", "cat | cat; true")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		_ = cmd.Wait()
	}()
	for len(descendants(cmd.Process.Pid)) < 2 && t.Context().Err() == nil {
	}
	if all := descendants(os.Getpid()); !slices.Contains(all, cmd.Process.Pid) {
		t.Errorf("%d is not among %v", cmd.Process.Pid, all)
	}
}

func TestUsageSeesWhatWeHold(t *testing.T) {
	before, err := UsageOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	after, err := UsageOf(os.Getpid())
	if err != nil || after.FDs < before.FDs+2 || after.RSS == 0 || after.Threads == 0 {
		t.Errorf("before %+v, after %+v, %v", before, after, err)
	}
	if n, err := Memory("MemTotal"); err != nil || n < 1<<20 {
		t.Errorf("memory %d, %v", n, err)
	}
	if _, err := Memory("Nothing"); err == nil {
		t.Error("a line that is not there was read")
	}
}
