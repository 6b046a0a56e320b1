package child

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestStopReportsTheOutputOfAFailure(t *testing.T) {
	c, err := Start(Options{}, "sh", "-c", "echo it broke >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err == nil || !strings.Contains(err.Error(), "exit status 3: it broke") {
		t.Fatalf("got %v", err)
	}
}

func TestStopKillsWhatIgnoresSIGTERM(t *testing.T) {
	c, err := Start(Options{}, "sh", "-c", "trap '' TERM; echo ready; while :; do read x; done")
	if err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return strings.Contains(c.Output(), "ready") })
	if err := c.Stop(50 * time.Millisecond); err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Fatalf("got %v", err)
	}
	if c.Alive() {
		t.Fatal("it is alive")
	}
}

func TestOnlyTheEndOfALongOutputIsKept(t *testing.T) {
	c, err := Start(Options{}, "sh", "-c", "seq 1 10000")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	if out := c.Output(); len(out) > maxTail || !strings.HasSuffix(out, "\n10000") {
		t.Fatalf("%d bytes, ending in %q", len(out), out[max(0, len(out)-20):])
	}
}

// A child must not outlive a parent that was killed: the parent here is this
// test binary, run once more.
func TestAChildDiesWithItsParent(t *testing.T) {
	if os.Getenv("CHILD_TEST_PARENT") != "" {
		c, err := Start(Options{}, "sleep", "600")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.WriteString("child " + strconv.Itoa(c.PID()) + "\n")
		select {}
	}
	parent := exec.Command(os.Args[0], "-test.run=^TestAChildDiesWithItsParent$")
	parent.Env = append(os.Environ(), "CHILD_TEST_PARENT=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	n, err := out.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(string(buf[:n]), "child ")))
	if err != nil {
		t.Fatal(err)
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	until(t, func() bool { return ended(pid) })
}

// ended reports that no process pid runs; one that nobody has waited for yet
// does not run either.
func ended(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func until(t *testing.T, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for !done() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("waited a minute in vain")
		}
	}
}
