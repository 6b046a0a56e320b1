package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// innerMark tells the supervised process from its supervisor.
const (
	innerMark  = "CSI_MPATH_BENCH_INNER"
	ownNetwork = "own network" // its value in a network namespace of its own
)

// supervise runs this program once more in a session of its own, so that all
// that is measured shares one scheduling group, and passes signals on.
func supervise(c config) int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM}
	mark := "1"
	if c.congestion != "" && os.Geteuid() == 0 {
		mark, cmd.SysProcAttr.Cloneflags = ownNetwork, syscall.CLONE_NEWNET
	}
	cmd.Env = append(os.Environ(), innerMark+"="+mark)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	_ = cmd.Wait()
	return max(cmd.ProcessState.ExitCode(), 0)
}

// loopback makes the namespace's loopback interface work, with one congestion
// control for every connection of every peer. Where the machine's default paces
// (bbr), its timers cost more than a transfer over loopback does.
func loopback(congestion string) error {
	for _, arg := range []string{
		"link set lo up",
		"route replace table local local 127.0.0.0/8 dev lo proto kernel scope host src 127.0.0.1 congctl " + congestion,
		"route replace table local local 127.0.0.1 dev lo proto kernel scope host src 127.0.0.1 congctl " + congestion,
	} {
		if out, err := exec.Command("ip", strings.Fields(arg)...).CombinedOutput(); err != nil { //nolint:gosec // our own flag
			return fmt.Errorf("ip %s: %w: %s; --congestion '' measures in the machine's network", arg, err, out)
		}
	}
	return nil
}

// network says what loopback did.
func (c *config) network() string {
	if os.Getenv(innerMark) != ownNetwork {
		return "the machine's congestion control"
	}
	return "congestion control " + c.congestion
}

// setNice sets the share of this session against the machine's other work; it
// needs root and the kernel's autogroups. It is no free lunch: with a large
// share a woken server preempts the client at each request, so nothing is
// batched, and the ratios change.
func setNice(nice int) error {
	if err := os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(nice)), 0); err != nil {
		return fmt.Errorf("--nice: %w", err)
	}
	return nil
}

// process is a server or target that the bench started.
type process struct {
	name string
	cmd  *exec.Cmd
	out  tail
	done chan struct{}
}

// tail keeps the last bytes of a program's output for error messages.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
	to  io.Writer
}

const tailSize = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.to != nil {
		_, _ = t.to.Write(p)
	}
	t.buf.Write(p)
	if n := t.buf.Len() - tailSize; n > 0 {
		t.buf.Next(n)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(t.buf.String())
}

// start runs a program, pinned, in a process group of its own, until stop or
// the end of the bench.
func (b *bench) start(name string, env []string, arg ...string) (*process, error) {
	p := &process{name: name, done: make(chan struct{})}
	if b.verbose {
		p.out.to = os.Stderr
	}
	p.cmd = exec.Command(b.pin(arg)[0], b.pin(arg)[1:]...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w (make setup installs the peers)", name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	b.procs = append(b.procs, p)
	return p, nil
}

// pin puts taskset, and chrt if asked for, before a command line.
func (b *bench) pin(arg []string) []string {
	if b.cpu == "" {
		return arg
	}
	pinned := []string{"taskset", "-c", b.cpu}
	if b.batch {
		pinned = append(pinned, "chrt", "-b", "0")
	}
	return append(pinned, arg...)
}

// stop ends the process and everything it started: politely, then not.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(2 * time.Second):
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// await polls until ready, the process's death or ten seconds.
func (b *bench) await(p *process, what string, ready func() bool) error {
	limit := time.After(10 * time.Second)
	for !ready() {
		select {
		case <-b.ctx.Done():
			return b.ctx.Err()
		case <-p.done:
			return fmt.Errorf("%s ended before %s: %s", p.name, what, p.out.String())
		case <-limit:
			return fmt.Errorf("%s: no %s after ten seconds: %s", p.name, what, p.out.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// awaitSocket waits for a unix socket to appear.
func (b *bench) awaitSocket(p *process, path string) error {
	return b.await(p, "socket "+path, func() bool {
		_, err := os.Stat(path)
		return err == nil
	})
}

// cpuTime is the user and system time so far of the process, its threads, and
// its children: csi-mpath's work is done by a child of the process started.
func (p *process) cpuTime() (time.Duration, error) {
	total, err := pidTime(p.cmd.Process.Pid)
	if err != nil {
		return 0, fmt.Errorf("%s is gone: %s", p.name, p.out.String())
	}
	for _, child := range children(p.cmd.Process.Pid) {
		t, err := pidTime(child)
		if err != nil {
			return 0, fmt.Errorf("a child of %s is gone: %s", p.name, p.out.String())
		}
		total += t
	}
	return total, nil
}

func pidTime(pid int) (time.Duration, error) {
	s, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	return parseStat(string(s))
}

// children are the processes whose parent is pid (field 4 of stat).
func children(pid int) (out []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, _ := os.ReadFile(path) //nolint:gosec // proc
		rest, _ := afterLast(string(b), ")")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == strconv.Itoa(pid) {
			if n, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				out = append(out, n)
			}
		}
	}
	return out
}

// parseStat reads utime and stime (fields 14 and 15 of proc_pid_stat(5), in
// ticks of 10 ms) behind the command name, which may hold anything.
func parseStat(s string) (time.Duration, error) {
	rest, ok := afterLast(s, ")")
	f := strings.Fields(rest)
	if !ok || len(f) < 13 {
		return 0, errors.New("/proc/PID/stat has an unknown form")
	}
	user, err1 := strconv.ParseInt(f[11], 10, 64)
	system, err2 := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(err1, err2)
}

// afterLast is what follows the last sep.
func afterLast(s, sep string) (rest string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[i+len(sep):], true
	}
	return "", false
}

// command runs a short command, not pinned.
func (b *bench) command(env []string, arg ...string) error {
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, arg[0], arg[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %.500s", strings.Join(arg, " "), err, out)
	}
	return nil
}
