package bench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"github.com/csi-mpath/csi-mpath/pkg/target"
)

// ChildCommand are the arguments, and one more of Child, with which this program
// is to call Child.
var ChildCommand = []string{"bench", "child"}

// What a child does.
const (
	childBusy   = "busy"   // keeps one CPU busy
	childServes = "target" // a target of memory; its portal is the line it prints
)

// Child is a helper process of Seeds. It ends when in does.
func Child(what string, in io.Reader, out io.Writer) error {
	switch what {
	case childBusy:
		go func() {
			for n := 0; ; n++ {
				_ = n
			}
		}()
	case childServes:
		srv, portal, err := memoryTarget(s5Size)
		if err != nil {
			return err
		}
		defer func() { _ = srv.Close() }()
		if _, err := fmt.Fprintln(out, portal); err != nil {
			return err
		}
	default:
		return fmt.Errorf("bench: no child is called %q", what)
	}
	_, err := io.Copy(io.Discard, in)
	return err
}

// startChild runs one; end ends it and waits.
func startChild(what string) (out *bufio.Reader, end func(), err error) {
	c := exec.Command("/proc/self/exe", append(ChildCommand, what)...)
	// A group of its own: Ctrl-C is for us, who end it when its clients are done.
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	in, err := c.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	pipe, err := c.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := c.Start(); err != nil {
		return nil, nil, fmt.Errorf("a process of our own (%s): %w", what, err)
	}
	return bufio.NewReader(pipe), func() {
		_ = in.Close()
		_ = c.Process.Kill() // it has nothing to lose
		_ = c.Wait()
	}, nil
}

// childTarget starts a target and fills in its portal.
func childTarget(portal *string) (end func(), err error) {
	out, end, err := startChild(childServes)
	if err != nil {
		return nil, err
	}
	line, err := out.ReadString('\n')
	if err != nil {
		end()
		return nil, fmt.Errorf("the target in a process of our own: %w", err)
	}
	*portal = strings.TrimSpace(line)
	return end, nil
}

// busyMachine is childTarget on a machine whose every CPU is kept busy by
// processes of their own, as neighbours do.
func busyMachine(portal *string) (end func(), err error) {
	end, err = childTarget(portal)
	if err != nil {
		return nil, err
	}
	for range runtime.NumCPU() {
		before := end
		_, stop, err := startChild(childBusy)
		if err != nil {
			before()
			return nil, err
		}
		end = func() { stop(); before() }
	}
	return end, nil
}

// memoryTarget is a target with a stamped volume as LUN 0.
func memoryTarget(size uint64) (srv *target.Server, portal string, err error) {
	ram := target.NewRAM(size)
	block := make([]byte, requestSize)
	for off := uint64(0); off < size; off += requestSize {
		stamp(block, off)
		if err := ram.WriteAt(block, off); err != nil {
			return nil, "", err
		}
	}
	if srv, err = target.New(target.Config{Name: s5Target, LUNs: []target.LUN{{Number: 0, Store: ram}}}); err != nil {
		return nil, "", err
	}
	p, err := srv.ListenPortal("127.0.0.1:0", target.PortalConfig{TPGT: 1})
	if err != nil {
		return nil, "", errors.Join(err, srv.Close())
	}
	return srv, p.Addr(), nil
}
