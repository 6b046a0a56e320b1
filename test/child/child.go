// Package child runs programs that die with this process.
//
// The kernel ties a child's parent-death signal to the thread that made it, so
// one thread, kept for the life of the process, starts them all.
package child

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// maxTail bounds the output kept for error messages, bytes.
const maxTail = 8192

// outputWithin bounds the wait for the end of the output of a program that has
// ended: a child of its own may hold it open, as the worker of a killed csi-mpath
// attach does while it ends in order (30 s at most). And on a machine short of
// CPU the output itself may come late.
const outputWithin = 45 * time.Second

// Child is a started program. Its methods may be called from any goroutine.
type Child struct {
	name string
	cmd  *exec.Cmd
	tail tail
	done chan struct{}
	err  error // of the exit; written before done is closed
}

// Options are the rare wishes about a child.
type Options struct {
	Env    []string  // added to this process's environment
	Stdout io.Writer // gets a copy of the standard output
	Stderr io.Writer // gets a copy of the standard error
}

var (
	starterOnce sync.Once
	starts      = make(chan func())
)

func starter() {
	runtime.LockOSThread() // never unlocked: the thread must outlive the children
	for f := range starts {
		f()
	}
}

// Start runs a program with SIGKILL as its parent-death signal.
func Start(opt Options, program string, args ...string) (*Child, error) {
	starterOnce.Do(func() { go starter() })
	c := &Child{name: program, cmd: exec.Command(program, args...), done: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), opt.Env...)
	c.cmd.Stdout, c.cmd.Stderr = tee(&c.tail, opt.Stdout), tee(&c.tail, opt.Stderr)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.cmd.WaitDelay = outputWithin
	started := make(chan error)
	starts <- func() { started <- c.cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

func tee(t *tail, w io.Writer) io.Writer {
	if w == nil {
		return t
	}
	return io.MultiWriter(t, w)
}

// Done is closed when the program has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Wait waits for the end and returns an error that carries the last output,
// nil for exit code 0.
func (c *Child) Wait() error {
	<-c.done
	if c.err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w: %s", c.name, c.err, c.Output())
}

// Alive reports whether the program still runs.
func (c *Child) Alive() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// Output is the end of what the program printed, for error messages.
func (c *Child) Output() string { return strings.TrimSpace(c.tail.String()) }

// PID is the process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Kill sends SIGKILL and waits for the end.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill()
	<-c.done
}

// Stop sends SIGTERM, waits up to limit for the end, and kills then. It reports
// an exit code other than 0 and a kill that was necessary.
func (c *Child) Stop(limit time.Duration) error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-c.done:
		return c.Wait()
	case <-t.C:
		c.Kill()
		return fmt.Errorf("%s did not end within %v of SIGTERM and was killed", c.name, limit)
	}
}

// tail keeps the last bytes written to it.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	p = p[max(0, n-maxTail):]
	if over := t.buf.Len() + len(p) - maxTail; over > 0 {
		t.buf.Next(over)
	}
	t.buf.Write(p)
	return n, nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}
