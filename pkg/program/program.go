// Package program runs programs of the host: without a shell, with a fixed PATH
// and language, bounded in time, output and number. A program ends with the
// process that ran it.
package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Path is where programs are looked for, whatever the environment says.
const Path = "/usr/sbin:/usr/bin:/sbin:/bin"

// Errors that callers tell apart, by errors.Is.
var (
	// ErrMissing: the program is not installed.
	ErrMissing = errors.New("the program is not installed")
	// ErrLeft: the program was killed and is not gone: it waits in the kernel.
	ErrLeft = errors.New("it was killed, and hangs in the kernel")
	// ErrBusy: MaxRunning programs run or hang.
	ErrBusy = errors.New("too many programs run or hang already")
)

// Call is one run of a program.
type Call struct {
	Name  string // without directory
	Args  []string
	Stdin []byte
	// Output is how much it may print, bytes; 0 is MaxOutput. More is an error.
	Output int
	// Gone, if set, is called when the program is really gone, or did not start:
	// before Run returns, or after when it was left behind.
	Gone func()
}

// Result is what a program did that ended by itself.
type Result struct {
	Code    int    // its exit code
	Out     []byte // what it printed
	Message string // the beginning of its error output, one line
}

// Runner runs a call; Run is one.
type Runner func(ctx context.Context, c Call) (Result, error)

// slots holds a token for each program that runs or hangs.
var slots = make(chan struct{}, MaxRunning)

// Run runs a program until it ends or ctx does, then it is killed. An exit code
// other than 0 is no error.
func Run(ctx context.Context, c Call) (Result, error) {
	if c.Gone == nil {
		c.Gone = func() {}
	}
	file, err := find(c.Name)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.Gone()
		return Result{}, fmt.Errorf("%s: %w", c.Name, err)
	}
	select {
	case slots <- struct{}{}:
	default:
		c.Gone()
		return Result{}, fmt.Errorf("%s: %w (%d)", c.Name, ErrBusy, MaxRunning)
	}
	done := make(chan outcome, 1)
	go func() {
		// The kernel ends a child with the thread that started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		o := run(ctx, file, c)
		c.Gone()
		<-slots
		done <- o
	}()
	o := await(ctx, done)
	if o.err != nil {
		o.err = fmt.Errorf("%s: %w", c.Name, o.err)
	}
	return o.Result, o.err
}

type outcome struct {
	Result
	err error
}

func await(ctx context.Context, done chan outcome) outcome {
	select {
	case o := <-done:
		return o
	case <-ctx.Done():
	}
	t := time.NewTimer(reapWithin)
	defer t.Stop()
	select {
	case o := <-done:
		return o
	case <-t.C:
		return outcome{err: fmt.Errorf("%w: %w", ctx.Err(), ErrLeft)}
	}
}

func run(ctx context.Context, file string, c Call) outcome {
	limit := c.Output
	if limit <= 0 {
		limit = MaxOutput
	}
	out, message := &bounded{limit: limit}, &bounded{limit: maxMessage}
	cmd := exec.CommandContext(ctx, file, c.Args...) //nolint:gosec // argv of the caller, no shell
	cmd.Env = []string{"PATH=" + Path, "LC_ALL=C"}
	cmd.Dir = "/"
	cmd.Stdin = nil
	if c.Stdin != nil {
		cmd.Stdin = strings.NewReader(string(c.Stdin))
	}
	cmd.Stdout, cmd.Stderr = out, message
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = pipesWithin
	err := cmd.Run()
	r := Result{Out: out.b, Message: oneLine(message.b)}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil && err != nil:
		return outcome{r, ctx.Err()}
	case errors.As(err, &exit) && exit.Exited():
		r.Code = exit.ExitCode()
	case err != nil:
		return outcome{r, err}
	}
	if out.over {
		return outcome{r, fmt.Errorf("it printed more than %d bytes", limit)}
	}
	return outcome{r, nil}
}

// bounded keeps the beginning of what is written to it.
type bounded struct {
	b     []byte
	limit int
	over  bool
}

func (w *bounded) Write(p []byte) (int, error) {
	n := min(len(p), w.limit-len(w.b))
	w.b = append(w.b, p[:n]...)
	w.over = w.over || n < len(p)
	return len(p), nil
}

// find returns the program's file.
func find(name string) (string, error) {
	if name == "" || strings.ContainsRune(name, '/') {
		return "", fmt.Errorf("%q is no program's name", name)
	}
	for _, dir := range filepath.SplitList(Path) {
		file := filepath.Join(dir, name)
		if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("%w in %s", ErrMissing, Path)
}

// oneLine makes a program's message fit into an error.
func oneLine(b []byte) string {
	clean := func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return ' '
		}
		return r
	}
	return strings.Join(strings.Fields(strings.Map(clean, string(b))), " ")
}

// Failed is the error of a program that ended with a code that is none of ok.
func (r Result) Failed(name string, ok ...int) error {
	for _, code := range append(ok, 0) {
		if r.Code == code {
			return nil
		}
	}
	return fmt.Errorf("%s: exit code %d: %s", name, r.Code, r.Message)
}
