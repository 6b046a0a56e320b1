package rig

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/csi-mpath/csi-mpath/test/child"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
)

// Product is a csi-mpath process, with the children it may have. It is for one
// goroutine.
type Product struct {
	bin   string
	args  []string
	c     *child.Child
	lines *lines
}

// StartProduct starts csi-mpath with some arguments; the binary's name is in
// CSI_MPATH_BIN. It is stopped when the test ends.
func StartProduct(t testing.TB, args ...string) *Product {
	t.Helper()
	bin := os.Getenv("CSI_MPATH_BIN")
	if bin == "" {
		t.Fatal("CSI_MPATH_BIN does not name the csi-mpath binary: run make vm-test")
	}
	p := &Product{bin: bin, args: args, lines: &lines{}}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.c.Alive() {
			if err := p.Stop(); err != nil {
				t.Error(err)
			}
		}
		if t.Failed() {
			t.Logf("csi-mpath printed last:\n%s", tail(p.lines.text()))
		}
	})
	return p
}

// Start starts it again, with the same arguments, after Kill or Stop.
func (p *Product) Start() (err error) {
	p.c, err = child.Start(child.Options{Stdout: p.lines, Stderr: p.lines}, p.bin, p.args...)
	kmsg.Say("csi-mpath started (%v)", err)
	return err
}

// Stop is SIGTERM: it drains and ends. An exit code other than 0 is an error.
func (p *Product) Stop() error {
	kmsg.Say("csi-mpath is stopped")
	err := p.c.Stop(stopWithin)
	kmsg.Say("csi-mpath has ended (%v)", err)
	return err
}

// Kill is kill -9 of the process and of all its children, parents first: none
// can restart another.
func (p *Product) Kill() {
	kmsg.Say("csi-mpath is killed")
	all := append([]int{p.c.PID()}, descendants(p.c.PID())...)
	for _, pid := range all {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	p.c.Kill()
}

// KillWorker is kill -9 of the children only: the process shall start others.
func (p *Product) KillWorker() error {
	kmsg.Say("csi-mpath's worker is killed")
	all := descendants(p.c.PID())
	if len(all) == 0 {
		return fmt.Errorf("process %d has no children", p.c.PID())
	}
	for _, pid := range all {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill -9 %d: %w", pid, err)
		}
	}
	return nil
}

// Freeze is SIGSTOP of the process and its children: alive, and silent. Thaw
// ends it.
func (p *Product) Freeze() { p.signal(syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (p *Product) Thaw() { p.signal(syscall.SIGCONT) }

func (p *Product) signal(s syscall.Signal) {
	for _, pid := range append([]int{p.c.PID()}, descendants(p.c.PID())...) {
		_ = syscall.Kill(pid, s)
	}
}

// PID is the process's id; Workers are those of its children.
func (p *Product) PID() int { return p.c.PID() }

// Workers are the ids of the children.
func (p *Product) Workers() []int { return descendants(p.c.PID()) }

// Done is closed when the process that runs now has ended.
func (p *Product) Done() <-chan struct{} { return p.c.Done() }

// Err is why it has ended, nil while it runs.
func (p *Product) Err() error {
	if p.c.Alive() {
		return nil
	}
	return fmt.Errorf("csi-mpath has ended: %w: %s", p.c.Wait(), p.c.Output())
}

// Output is the end of what it printed.
func (p *Product) Output() string { return p.c.Output() }
