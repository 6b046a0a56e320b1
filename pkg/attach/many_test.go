package attach_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/csi-mpath/csi-mpath/pkg/attach/attachtest"
	"github.com/csi-mpath/csi-mpath/pkg/mount/mounttest"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
	"github.com/csi-mpath/csi-mpath/pkg/target/subsystem"
	"github.com/csi-mpath/csi-mpath/pkg/volume"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// listen adds portals at any free port.
func (r *rig) listen(n int) {
	r.Helper()
	for range n {
		p, err := r.base.ListenPortal("127.0.0.1:0", target.PortalConfig{TPGT: 1, Group: 1})
		r.must(err)
		r.portals = append(r.portals, p)
	}
}

// unit adds a LUN or namespace to the array.
func (r *rig) unit(n uint32) *target.RAM {
	r.Helper()
	ram := target.NewRAM(size)
	if r.nvme != nil {
		r.must(r.nvme.AddNamespace(subsystem.Namespace{ID: n, Store: ram}))
	} else {
		r.must(r.iscsi.AddLUN(target.LUN{Number: n, Store: ram}))
	}
	return ram
}

// sessions are those that the array has, of anybody.
func (r *rig) sessions() []serve.Attached {
	if r.nvme != nil {
		return r.nvme.Attached()
	}
	return r.iscsi.Attached()
}

// sessionsAt counts them by portal.
func (r *rig) sessionsAt() map[string]int {
	n := map[string]int{}
	for _, s := range r.sessions() {
		n[s.Portal]++
	}
	return n
}

// noSessions waits until the target has none: it is told of an end a moment later.
func (r *rig) noSessions() {
	r.Helper()
	r.until("the end of all sessions", func() bool { return len(r.sessionsAt()) == 0 })
}

// rawRequest stages unit n as a raw volume of its own.
func (r *rig) rawRequest(n uint32, change func(*attrs.Attachment)) volume.StageRequest {
	r.Helper()
	q := r.request(func(a *attrs.Attachment) {
		if r.nvme != nil {
			a.NSID = n
		} else {
			a.LUN = n
		}
		if change != nil {
			change(a)
		}
	})
	q.Volume, q.Staging, q.Block = fmt.Sprint("v", n), filepath.Join(r.dir, fmt.Sprint("g", n)), true
	return q
}

// raw stages unit n, waits for all its paths, and returns what the node has of it.
func (r *rig) raw(n uint32) mounttest.Disk {
	r.Helper()
	q := r.rawRequest(n, nil)
	r.must(r.node.Stage(r.Context(), q))
	r.allPaths(q.Volume)
	return r.machine.Disk(q.Volume)
}

func (r *rig) unstageRaw(n uint32) {
	r.Helper()
	q := r.rawRequest(n, nil)
	r.must(r.node.Unstage(r.Context(), q.Volume, q.Staging))
}

func (r *rig) messageOf(name string) string {
	r.Helper()
	c, err := r.node.Condition(name, "")
	r.must(err)
	return c.Message
}

func (r *rig) allPaths(name string) {
	r.Helper()
	want := fmt.Sprintf("%d paths work", len(r.portals))
	r.until(want+", of "+name, func() bool { return r.messageOf(name) == want })
}

func (r *rig) noPath(name string) {
	r.Helper()
	r.until("no path of "+name, func() bool { return strings.HasPrefix(r.messageOf(name), "none of ") })
}

// kill ends all portals, revive brings them back.
func (r *rig) kill() {
	for _, p := range r.portals {
		p.Kill()
	}
}

func (r *rig) revive() {
	r.Helper()
	for _, p := range r.portals {
		r.must(p.Start())
	}
}

// put writes a block of one letter, get wants it.
func (r *rig) put(d mounttest.Disk, off int64, letter byte) {
	r.Helper()
	_, err := d.WriteAt(bytes.Repeat([]byte{letter}, 4096), off)
	r.must(err)
}

func (r *rig) get(d mounttest.Disk, off int64, letter byte) {
	r.Helper()
	b := make([]byte, 4096)
	_, err := d.ReadAt(b, off)
	r.must(err)
	if !bytes.Equal(b, bytes.Repeat([]byte{letter}, 4096)) {
		r.Errorf("at %d it has %q..., want %q", off, b[:4], letter)
	}
}

// another is another node over the same array.
func (r *rig) another() *rig {
	r.Helper()
	o := *r
	var err error
	o.dir, err = os.MkdirTemp("", "at")
	r.must(err)
	r.Cleanup(func() { _ = os.RemoveAll(o.dir) })
	o.machine, err = attachtest.New(o.dir)
	r.must(err)
	o.start()
	r.Cleanup(o.end)
	return &o
}

// mute is a portal that takes connections and says nothing.
type mute struct {
	address string
	called  <-chan struct{} // closed by the first connection
}

// silence listens until the test ends.
func (r *rig) silence() mute {
	r.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	called := make(chan struct{})
	var once sync.Once
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.Cleanup(func() { _ = c.Close() })
			once.Do(func() { close(called) })
		}
	}()
	r.Cleanup(func() { _ = l.Close() })
	return mute{l.Addr().String(), called}
}
