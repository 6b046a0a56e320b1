package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/csi-mpath/csi-mpath/test/child"
	"github.com/csi-mpath/csi-mpath/test/vm/spec"
)

// binEnv names the product's binary. Like the test binary it is copied for each
// run: the machine sees the host's files live, and a build must not replace what
// runs in it.
const binEnv = "CSI_MPATH_BIN"

// kernelEnv tells the program which kernel was asked for.
const kernelEnv = "CSI_MPATH_VM_KERNEL"

// run is the folder of one machine. Its lock ends with this process.
type run struct {
	dir    string
	unlock func()
}

// newRun makes a folder, and removes those of runs that were killed.
func (c *cache) newRun() (*run, error) {
	runs := filepath.Join(c.dir, "run")
	all, err := os.ReadDir(runs)
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		sweep(filepath.Join(runs, e.Name()))
	}
	dir, err := os.MkdirTemp(runs, "r")
	if err != nil {
		return nil, err
	}
	unlock, err := lock(filepath.Join(dir, "lock"), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		return nil, err
	}
	return &run{dir, unlock}, nil
}

func sweep(dir string) {
	if _, err := os.Stat(filepath.Join(dir, "lock")); err != nil {
		// Perhaps just being made.
		if st, err := os.Stat(dir); err != nil || time.Since(st.ModTime()) < sweepAfter {
			return
		}
	}
	if unlock, err := lock(filepath.Join(dir, "lock"), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		_ = os.RemoveAll(dir)
		unlock()
	}
}

func (r *run) remove() {
	_ = os.RemoveAll(r.dir)
	r.unlock()
}

func (r *run) file(name string) string { return filepath.Join(r.dir, name) }

// run starts the machine and waits for its end.
func (r *run) run(o *options, k *kernel) (int, error) {
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		return 0, errors.New("qemu-system-x86_64 is missing: run make setup as root")
	}
	s, err := r.spec(o, k)
	if err != nil {
		return 0, err
	}
	if err := initrd(r.file("initrd"), o.init, k, s, o.mods); err != nil {
		return 0, err
	}
	m := &machine{cpus: o.cpus, memory: o.memory, kernel: k.image(), initrd: r.file("initrd"),
		log: r.file("log"), exit: r.file("exit"), shares: s.Shares, kernelOptions: o.kargs}
	why := r.boot(qemu, m, o.timeout)
	if o.logDir != "" {
		name := fmt.Sprintf("%s-%s.log", filepath.Base(o.args[0]), o.kernel)
		why = errors.Join(why, copyFile(filepath.Join(o.logDir, name), m.log, 0o644))
	}
	return r.verdict(why)
}

// spec says what the machine shall do.
func (r *run) spec(o *options, k *kernel) (*spec.Spec, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	program, err := exec.LookPath(o.args[0])
	if err != nil {
		return nil, err
	}
	s := &spec.Spec{Args: append([]string{r.file("program")}, o.args[1:]...), Env: environ(os.Environ()),
		Dir: dir, Tree: k.tree(), Release: k.release, Limit: max(o.timeout-guestEarlier, o.timeout/2)}
	if err := copyFile(s.Args[0], program, 0o755); err != nil {
		return nil, err
	}
	s.Env = append(s.Env, kernelEnv+"="+o.kernel)
	if bin := os.Getenv(binEnv); bin != "" {
		if err := copyFile(r.file("product"), bin, 0o755); err != nil {
			return nil, fmt.Errorf("%s: %w", binEnv, err)
		}
		s.Env = append(s.Env, binEnv+"="+r.file("product"))
	}
	for one := range strings.SplitSeq(o.rw, ",") {
		if one == "" {
			continue
		}
		if one, err = filepath.Abs(one); err != nil {
			return nil, err
		}
		s.Shares = append(s.Shares, one)
	}
	return s, nil
}

// environ is what of the host's environment goes into the machine: what steers
// Go and our tests. The rest is none of its business.
func environ(host []string) []string {
	out := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/run/tmp", "TMPDIR=/run/tmp", "LC_ALL=C", "TERM=dumb"}
	for _, e := range host {
		name, _, _ := strings.Cut(e, "=")
		switch {
		case name == binEnv, name == kernelEnv:
		case strings.HasPrefix(name, "CSI_MPATH_"), name == "GODEBUG", name == "GOTRACEBACK", name == "GOCOVERDIR":
			out = append(out, e)
		}
	}
	return out
}

// errClock: the kernel has measured its clock wrongly.
var errClock = errors.New("the machine's clock is wrong")

// wrongClock is what the kernel says when its measurement of the CPU's counter was
// disturbed, as it is on a busy host. It may go on with a clock 20 times too fast,
// in which everything times out.
var wrongClock = []byte("PIT calibration deviates")

// boot runs the machine; one whose clock may be wrong is started again, a few times.
func (r *run) boot(qemu string, m *machine, limit time.Duration) error {
	for try := 1; ; try++ {
		why := r.wait(qemu, m, limit, try < maxBoots)
		if !errors.Is(why, errClock) {
			return why
		}
		fmt.Fprintf(os.Stderr, "vmrun: %v (boot %d of %d): once more\n", why, try, maxBoots)
		if err := os.Remove(r.file("log")); err != nil { // it must not be taken for the next one's
			return err
		}
	}
}

// clockDoubtful looks at the beginning of the kernel's log.
func (r *run) clockDoubtful() bool {
	f, err := os.Open(r.file("log"))
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	b, _ := io.ReadAll(io.LimitReader(f, bootLog))
	return bytes.Contains(b, wrongClock)
}

// wait runs qemu, which dies with this process, and says why it had to be ended.
// clock: a doubtful one is a reason.
func (r *run) wait(qemu string, m *machine, limit time.Duration, clock bool) error {
	signals := make(chan os.Signal, 1)
	// go test sends SIGQUIT to what takes too long.
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP)
	vm, err := child.Start(child.Options{Stdout: os.Stdout}, qemu, m.args()...)
	if err != nil {
		return err
	}
	late := time.NewTimer(limit)
	defer late.Stop()
	look := time.NewTicker(bootLook)
	defer look.Stop()
	for began := time.Now(); ; {
		select {
		case <-vm.Done():
			return vm.Wait()
		case <-late.C:
			vm.Kill()
			return fmt.Errorf("timeout: not done within %v", limit)
		case s := <-signals:
			vm.Kill()
			return fmt.Errorf("ended by signal: %v", s)
		case <-look.C:
			if clock && r.clockDoubtful() {
				vm.Kill()
				return errClock
			}
			if time.Since(began) > bootWithin {
				look.Stop()
			}
		}
	}
}

// verdict turns what the machine left behind into an exit code.
func (r *run) verdict(why error) (int, error) {
	b, err := os.ReadFile(r.file("exit"))
	if err != nil && why == nil {
		why = err
	}
	o, told := spec.ParseOutcome(string(b))
	switch {
	case why != nil:
	case !told:
		why = errors.New("the machine ended without an exit code: kernel panic, oops or reset")
	case o.Why != "":
		why = errors.New(o.Why)
	default:
		return o.Code, nil
	}
	return 0, fmt.Errorf("%w\n%s", why, r.tail())
}

// tail is the end of the kernel's log.
func (r *run) tail() string {
	f, err := os.Open(r.file("log"))
	if err != nil {
		return "no kernel log"
	}
	defer func() { _ = f.Close() }()
	b, _ := io.ReadAll(io.LimitReader(f, maxLog))
	lines := strings.Split(strings.TrimSpace(string(bytes.ToValidUTF8(b, []byte("?")))), "\n")
	n := max(0, len(lines)-logTail)
	return fmt.Sprintf("--- end of the kernel's log\n%s\n---", strings.Join(lines[n:], "\n"))
}

func copyFile(to, from string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
