package sim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A run that panics, hangs or leaks a goroutine takes its process with it. So
// many runs are played by workers: this test binary again, with one processor
// each, which are given scripts as JSON lines.

type job struct {
	Script string
}

// work plays the scripts that come on in, one line each, and reports on out.
func work(t *testing.T, in io.Reader, out io.Writer) {
	dec, enc := json.NewDecoder(in), json.NewEncoder(out)
	debug.SetGCPercent(-1) // between runs only: the collector changes the order of goroutines
	for {
		var j job
		if dec.Decode(&j) != nil {
			return
		}
		s, err := Parse(strings.NewReader(j.Script))
		if err != nil {
			t.Fatal(err)
		}
		if enc.Encode(playOne(t, s, nil)) != nil {
			return
		}
		runtime.GC()
	}
}

// playOne plays a script with the processors it asks for, its files in memory
// where there is such a place.
func playOne(t *testing.T, s *Script, trace func(line string)) Report {
	dir, err := os.MkdirTemp(stateRoot(), "sim")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(s.Setup.Procs))
	return Play(t, s, dir, trace)
}

// stateRoot: the product syncs its files, which a disk takes its time for.
func stateRoot() string {
	const shm = "/dev/shm"
	if st, err := os.Stat(shm); err == nil && st.IsDir() {
		return shm
	}
	return ""
}

// worker is one such process.
type worker struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *tail
}

func startWorker() (*worker, error) {
	w := &worker{stderr: &tail{}}
	w.cmd = exec.Command(os.Args[0], "-test.run=^TestWorker$", "-test.timeout=0", "-sim.worker")
	w.cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOTRACEBACK=all")
	w.cmd.Stdout, w.cmd.Stderr = w.stderr, w.stderr
	r, pw, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	w.cmd.ExtraFiles = []*os.File{pw}
	w.out = bufio.NewReader(r)
	if w.in, err = w.cmd.StdinPipe(); err == nil {
		err = w.cmd.Start()
	}
	_ = pw.Close()
	return w, err
}

// play gives the worker one script. alive is false when it took the worker.
func (w *worker) play(s *Script) (rep Report, alive bool) {
	timer := time.AfterFunc(runLimit, func() { _ = w.cmd.Process.Signal(syscall.SIGQUIT) })
	defer timer.Stop()
	err := json.NewEncoder(w.in).Encode(job{Script: s.String()})
	var line []byte
	if err == nil {
		line, err = w.out.ReadBytes('\n')
	}
	if err == nil {
		err = json.Unmarshal(line, &rep)
	}
	if err == nil {
		return rep, true
	}
	err = w.end()
	rep.Broken = []string{fmt.Sprintf("the run took its process with it (%v):\n%s", err, w.stderr)}
	return rep, false
}

func (w *worker) end() error {
	_ = w.in.Close()
	return w.cmd.Wait()
}

// tail keeps the beginning of what a process says, which is where Go puts what
// went wrong.
type tail struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// maxTail bounds it, bytes.
const maxTail = 16 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if room := maxTail - t.b.Len(); room > 0 {
		t.b.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// pool runs scripts on n workers. each is called with the results, one at a
// time; false ends it.
func pool(n int, scripts func() *Script, each func(s *Script, rep Report) bool) error {
	var mu sync.Mutex // guards what follows, and the calls of scripts and each
	var first error
	over := false
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			var w *worker
			for {
				mu.Lock()
				var s *Script
				if !over {
					s = scripts()
				}
				mu.Unlock()
				if s == nil {
					break
				}
				if w == nil {
					var err error
					if w, err = startWorker(); err != nil {
						mu.Lock()
						first, over = err, true
						mu.Unlock()
						return
					}
				}
				rep, alive := w.play(s)
				if !alive {
					w = nil
				}
				mu.Lock()
				over = over || !each(s, rep)
				mu.Unlock()
			}
			if w != nil {
				_ = w.end()
			}
		})
	}
	wg.Wait()
	return first
}
