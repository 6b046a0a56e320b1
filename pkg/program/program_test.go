package program

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func run1(t *testing.T, c Call) Result {
	t.Helper()
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAProgramSeesNothingOfOurEnvironment(t *testing.T) {
	t.Setenv("PATH", "/nowhere")
	t.Setenv("LANG", "de_DE.UTF-8")
	if got := string(run1(t, Call{Name: "env"}).Out); got != "PATH="+Path+"\nLC_ALL=C\n" {
		t.Fatalf("it sees %q", got)
	}
}

func TestAnExitCodeIsNoErrorUntilTheCallerSaysSo(t *testing.T) {
	r := run1(t, Call{Name: "sh", Args: []string{"-c", "echo one; echo two >&2; exit 3"}})
	if r.Code != 3 || string(r.Out) != "one\n" || r.Message != "two" {
		t.Fatalf("got %+v", r)
	}
	if r.Failed("sh", 3) != nil || r.Failed("sh", 1) == nil {
		t.Fatal("exit code 3 is judged wrongly")
	}
}

func TestInputIsGivenWhole(t *testing.T) {
	in := strings.Repeat("x", 300<<10)
	if got := run1(t, Call{Name: "cat", Stdin: []byte(in)}); string(got.Out) != in {
		t.Fatalf("%d bytes of %d came back", len(got.Out), len(in))
	}
}

func TestTooMuchOutputIsAnErrorAndNotKept(t *testing.T) {
	r, err := Run(t.Context(), Call{Name: "head", Args: []string{"-c", "100000", "/dev/zero"}, Output: 1000})
	if err == nil || len(r.Out) != 1000 {
		t.Fatalf("%d bytes, %v", len(r.Out), err)
	}
}

func TestAMessageIsOneShortLine(t *testing.T) {
	r := run1(t, Call{Name: "sh", Args: []string{"-c", "printf 'a\\nb\\033[31m\\tc\\377' >&2; yes y | head -c 100000 >&2"}})
	if !strings.HasPrefix(r.Message, "a b [31m c y y") || len(r.Message) > maxMessage {
		t.Fatalf("%d bytes: %.40q", len(r.Message), r.Message)
	}
}

func TestAProgramThatIsNotThereIsSaidToBeMissing(t *testing.T) {
	_, err := Run(t.Context(), Call{Name: "no-such-program"})
	if !errors.Is(err, ErrMissing) {
		t.Fatal(err)
	}
}

func TestANameIsNoPath(t *testing.T) {
	if _, err := Run(t.Context(), Call{Name: "../bin/true"}); err == nil {
		t.Fatal("a path was taken for a name")
	}
}

func TestTheEndOfTheContextEndsTheProgramAndWhatItStarted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	pids, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = pids.Close(), w.Close() }()
	script := "sleep 1000 & echo $! >/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(int(w.Fd())) + "; wait"
	ended := make(chan error, 1)
	go func() {
		_, err := Run(ctx, Call{Name: "sh", Args: []string{"-c", script}, Gone: func() { close(gone) }})
		ended <- err
	}()
	b := make([]byte, 32)
	n, err := pids.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	<-gone
	child, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); alive(child); {
		if time.Since(begin) > time.Minute {
			t.Fatalf("process %d lives", child)
		}
	}
}

// alive: a zombie that nobody reaps is dead.
func alive(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	return unix.Kill(pid, 0) == nil && !strings.Contains(string(b), ") Z ")
}

func TestWhatDidNotStartIsGone(t *testing.T) {
	n := 0
	_, _ = Run(t.Context(), Call{Name: "no-such-program", Gone: func() { n++ }})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = Run(ctx, Call{Name: "true", Gone: func() { n++ }})
	if n != 2 {
		t.Fatalf("Gone was called %d times for 2 calls", n)
	}
}
