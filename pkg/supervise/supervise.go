// Package supervise runs a worker process, and another one at once when it
// dies: the parent of everything that holds devices. The parent has no socket
// and no state, so that it has nothing to crash on.
//
// The worker is the same program with the same arguments and EnvWorker set. It
// inherits one pipe, on which it says that it is ready and then, regularly,
// that it makes progress. A worker that stops saying so is killed and replaced.
package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

const (
	// EnvWorker marks the worker; its value is the pipe's descriptor.
	EnvWorker = "CSI_MPATH_WORKER"

	// EnvRestart is set for a worker that replaces one that had been ready.
	EnvRestart = "CSI_MPATH_RESTART"

	// BeatEvery is how often a worker reports progress.
	BeatEvery = time.Second
	// beatLimit: a worker silent for so long is taken for hung. Generous: a node
	// short of CPU must not lose a healthy worker.
	beatLimit = 30 * time.Second
	// crashWindow and crashBurst: more deaths than this in so long, and the next
	// start waits for crashPause.
	crashWindow = time.Minute
	crashBurst  = 20
	crashPause  = time.Second
	// pipeFD is where ExtraFiles puts the pipe.
	pipeFD = 3
	// lastWords bounds the wait for the end of a dead worker's pipe, which is at
	// once unless a process that it started holds a copy.
	lastWords = 5 * time.Second
)

// Config says what to run and whom to tell.
type Config struct {
	// Args are the worker's arguments, without the program's name.
	Args []string
	// Log is told of deaths and restarts.
	Log func(format string, args ...any)
	// Prepare runs once, on the locked thread that starts every worker: what it
	// sets for the thread (prctl) the workers inherit. nil for nothing.
	Prepare func()
}

// Worker reports whether this process is a worker.
func Worker() bool { return os.Getenv(EnvWorker) != "" }

// Restarted reports whether this worker replaces one that had been ready: what
// it holds was served before, so it must not give up.
func Restarted() bool { return os.Getenv(EnvRestart) != "" }

// Run starts workers until one ends on purpose, or a signal ended it, and
// returns the exit code. A worker that ends before it was ever ready ends on
// purpose, whatever its code: starting it again would fail again.
func Run(cfg Config) (int, error) {
	// Pdeathsig is sent when the thread that started the child ends, and
	// Prepare's settings belong to the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if cfg.Prepare != nil {
		cfg.Prepare()
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	var deaths []time.Time
	everReady := false
	for {
		w, err := start(cfg.Args, everReady)
		if err != nil {
			return 0, err
		}
		end := w.watch(signals)
		everReady = everReady || end.ready
		if end.stopping || !everReady || end.exited && end.ready && !end.panicked() {
			return end.code, nil
		}
		cfg.Log("worker %d ended: %s; starting the next", w.cmd.Process.Pid, end.why)
		deaths = recent(append(deaths, time.Now()))
		if len(deaths) > crashBurst {
			cfg.Log("%d workers died within %v: the next waits %v", len(deaths), crashWindow, crashPause)
			time.Sleep(crashPause)
		}
	}
}

func recent(deaths []time.Time) []time.Time {
	for len(deaths) > 0 && time.Since(deaths[0]) > crashWindow {
		deaths = deaths[1:]
	}
	return deaths
}

type worker struct {
	cmd   *exec.Cmd
	beats chan byte
}

func start(args []string, again bool) (*worker, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	cmd := exec.Command("/proc/self/exe", args...) //nolint:gosec // ourselves
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), EnvWorker+"="+strconv.Itoa(pipeFD))
	if again {
		cmd.Env = append(cmd.Env, EnvRestart+"=1")
	}
	cmd.ExtraFiles = []*os.File{w}
	// A worker without a parent would hold its devices with nobody to replace it.
	// A process group of its own: a terminal's Ctrl-C comes through us, once.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		_ = r.Close()
		return nil, fmt.Errorf("worker: %w", err)
	}
	wk := &worker{cmd: cmd, beats: make(chan byte, 16)}
	go wk.listen(r)
	return wk, nil
}

func (w *worker) listen(r io.ReadCloser) {
	defer func() { _ = r.Close() }()
	var b [16]byte
	for {
		n, err := r.Read(b[:])
		for _, c := range b[:n] {
			w.beats <- c
		}
		if err != nil {
			close(w.beats)
			return
		}
	}
}

// ending is how a worker ended.
type ending struct {
	ready    bool // it had been ready
	stopping bool // a signal that ends it had been forwarded
	exited   bool // by itself, not by a signal
	code     int
	why      string
}

// panicked: the Go runtime ends a process with this code on a panic and on a
// fatal error, which no command of ours uses once it is ready.
func (e *ending) panicked() bool { return e.code == 2 }

// watch forwards signals and listens for progress until the worker ends.
func (w *worker) watch(signals <-chan os.Signal) (e ending) {
	done := make(chan error, 1)
	go func() { done <- w.cmd.Wait() }()
	silence := time.NewTimer(beatLimit)
	silence.Stop()
	defer silence.Stop()
	beats := w.beats
	for {
		select {
		case s := <-signals:
			e.stopping = e.stopping || s == syscall.SIGTERM || s == syscall.SIGINT
			_ = w.cmd.Process.Signal(s)
		case _, ok := <-beats:
			if !ok {
				beats = nil
				continue
			}
			e.ready = true
			silence.Reset(beatLimit)
		case <-silence.C:
			e.why = fmt.Sprintf("no progress for %v, killed", beatLimit)
			_ = w.cmd.Process.Kill()
		case err := <-done:
			e.ready = w.readyAtTheEnd(beats) || e.ready
			w.finish(&e, err)
			return e
		}
	}
}

// readyAtTheEnd reads what a worker that has ended still said: it may have died
// right after it became ready, and must be replaced then.
func (w *worker) readyAtTheEnd(beats <-chan byte) (ready bool) {
	if beats == nil {
		return false
	}
	late := time.NewTimer(lastWords)
	defer late.Stop()
	for {
		select {
		case _, ok := <-beats:
			if !ok {
				return ready
			}
			ready = true
		case <-late.C:
			return ready
		}
	}
}

func (w *worker) finish(e *ending, err error) {
	st := w.cmd.ProcessState
	e.exited = st.Exited()
	e.code = st.ExitCode()
	if !e.exited {
		e.code = 1
		if ws, ok := st.Sys().(syscall.WaitStatus); ok {
			e.code = 128 + int(ws.Signal())
		}
	}
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		e.why += err.Error()
	}
	if e.why == "" {
		e.why = st.String()
	}
}

// Beat is the worker's end of the pipe.
type Beat struct{ f *os.File }

// NewBeat opens the pipe of a worker; without a parent its calls do nothing.
func NewBeat() *Beat {
	fd, err := strconv.Atoi(os.Getenv(EnvWorker))
	if err != nil || fd < 3 {
		return &Beat{}
	}
	syscall.CloseOnExec(fd)
	return &Beat{os.NewFile(uintptr(fd), "parent")}
}

// Ready says that the worker serves.
func (b *Beat) Ready() {
	if b.f != nil {
		_, _ = b.f.Write([]byte{'r'})
	}
}

// Run reports progress until stop is closed. progress must return only if the
// worker's vital parts do: it is called once per beat, and when it hangs the
// parent replaces the worker.
func (b *Beat) Run(stop <-chan struct{}, progress func()) {
	if b.f == nil {
		return
	}
	t := time.NewTicker(BeatEvery)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
			progress()
			_, _ = b.f.Write([]byte{'.'})
		}
	}
}
