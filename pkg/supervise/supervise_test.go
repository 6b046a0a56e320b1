package supervise

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary plays parent and worker: TestMain takes the part that the
// environment names.
func TestMain(m *testing.M) {
	switch {
	case Worker():
		playWorker(os.Getenv("PLAY"))
	case os.Getenv("PLAY") != "":
		code, err := Run(Config{Log: func(f string, a ...any) { fmt.Printf("parent: "+f+"\n", a...) }})
		if err != nil {
			fmt.Println("parent:", err)
		}
		os.Exit(code)
	default:
		os.Exit(m.Run())
	}
}

// playWorker prints its pid and does what the play says.
func playWorker(play string) {
	b := NewBeat()
	sig := make(chan os.Signal, 1)
	signal.Notify(sig, syscall.SIGTERM)
	if play == "never ready" {
		fmt.Println("worker", os.Getpid())
		os.Exit(3)
	}
	b.Ready()
	fmt.Println("worker", os.Getpid())
	if play == "ends itself" {
		os.Exit(7)
	}
	if play == "panics once" {
		if _, err := os.Stat(os.Getenv("MARK")); err != nil {
			_ = os.WriteFile(os.Getenv("MARK"), nil, 0o600)
			panic("as the play says")
		}
	}
	<-sig
	os.Exit(0)
}

type troupe struct {
	*testing.T
	cmd *exec.Cmd
	out *bufio.Scanner
}

func perform(t *testing.T, play string) *troupe {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "PLAY="+play, "MARK="+t.TempDir()+"/mark")
	r, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return &troupe{T: t, cmd: cmd, out: bufio.NewScanner(r)}
}

// next returns the next worker's pid, past what the parent says.
func (p *troupe) next() int {
	p.Helper()
	for p.out.Scan() {
		if s, ok := strings.CutPrefix(p.out.Text(), "worker "); ok {
			pid, err := strconv.Atoi(s)
			if err != nil {
				p.Fatal(err)
			}
			return pid
		}
	}
	p.Fatal("no worker")
	return 0
}

func (p *troupe) code() int {
	for p.out.Scan() {
		continue
	}
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

func TestAKilledWorkerIsReplacedAtOnce(t *testing.T) {
	p := perform(t, "waits")
	first := p.next()
	start := time.Now()
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := p.next()
	if second == first || time.Since(start) > beatLimit {
		t.Fatalf("worker %d after %d, %v later", second, first, time.Since(start))
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if c := p.code(); c != 0 {
		t.Fatalf("exit code %d", c)
	}
}

func TestAPanicIsReplacedToo(t *testing.T) {
	p := perform(t, "panics once")
	first := p.next()
	if second := p.next(); second == first {
		t.Fatal("not replaced")
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if c := p.code(); c != 0 {
		t.Fatalf("exit code %d", c)
	}
}

func TestSIGTERMReachesTheWorkerAndEndsBoth(t *testing.T) {
	p := perform(t, "waits")
	w := p.next()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if c := p.code(); c != 0 {
		t.Fatalf("exit code %d", c)
	}
	if err := syscall.Kill(w, 0); err == nil {
		t.Fatal("the worker lives on")
	}
}

func TestAWorkerThatEndsByItselfEndsTheParentWithItsCode(t *testing.T) {
	p := perform(t, "ends itself")
	p.next()
	if c := p.code(); c != 7 {
		t.Fatalf("exit code %d, want 7", c)
	}
}

func TestAWorkerThatNeverCameUpIsNotStartedAgain(t *testing.T) {
	p := perform(t, "never ready")
	p.next()
	if c := p.code(); c != 3 {
		t.Fatalf("exit code %d, want 3", c)
	}
}

func TestAWorkerOutlivesNoParent(t *testing.T) {
	p := perform(t, "waits")
	w := p.next()
	_ = p.cmd.Process.Kill()
	for deadline := time.Now().Add(time.Minute); syscall.Kill(w, 0) == nil && !zombie(w); {
		if time.Now().After(deadline) {
			t.Fatal("the worker lives on")
		}
	}
}

func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}
