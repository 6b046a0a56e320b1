package device_test

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
	"github.com/csi-mpath/csi-mpath/pkg/target/subsystem"
)

// patience bounds what must come in the end, on however slow a machine.
const patience = time.Minute

// inTime tells a story whose heart must happen before the time of a fence is
// over. On a machine that stood still for so long it shows nothing, and is told
// again with more time.
func inTime(t *testing.T, story func(t *testing.T, fence time.Duration) (late bool)) {
	for fence := 2 * time.Second; fence < patience; fence *= 2 {
		late := true
		t.Run(fence.String(), func(t *testing.T) { late = story(t, fence) })
		if !late || t.Failed() {
			return
		}
	}
	t.Fatal("the machine is too slow for this test")
}

// rig is a volume over real sockets: our target with some portals, our device.
type rig struct {
	*testing.T
	base    *serve.Server     // of the target, whatever it speaks
	srv     *target.Server    // over iSCSI, else nil
	sub     *subsystem.Server // over NVMe/TCP, else nil
	foreign *foreign          // somebody else's, else nil
	ram     *target.RAM
	portals []*target.Portal
	dev     *device.Device
	lane    nbd.Lane

	mu     sync.Mutex
	free   []uint32
	status map[*blk.Request]blk.Status
	events []datapath.Event
}

func newRig(t *testing.T, portals int, cfg target.Config) *rig {
	t.Helper()
	r := &rig{T: t, ram: target.NewRAM(1 << 20)}
	cfg.LUNs = []target.LUN{{Number: 1, Store: storeOf(r.ram, cfg.LUNs)}}
	var err error
	if r.srv, err = target.New(cfg); err != nil {
		t.Fatal(err)
	}
	r.base = r.srv.Server
	return r.listen(portals)
}

// storeOf is ram, unless a unit is given: then it is that one's slow store, over ram.
func storeOf[U target.LUN | subsystem.Namespace](ram *target.RAM, given []U) target.Store {
	for _, u := range given {
		var s target.Store
		switch u := any(u).(type) {
		case target.LUN:
			s = u.Store
		case subsystem.Namespace:
			s = u.Store
		}
		slow := s.(*slowStore)
		slow.Store = ram
		return slow
	}
	return ram
}

// newNVMeRig is newRig over NVMe/TCP. Without traffic based keep alive and with
// no quiesce time a fence is two keep alive timeouts.
func newNVMeRig(t *testing.T, portals int, cfg subsystem.Config) *rig {
	t.Helper()
	r := &rig{T: t, ram: target.NewRAM(1 << 20)}
	cfg.Namespaces = []subsystem.Namespace{{ID: 1, Store: storeOf(r.ram, cfg.Namespaces)}}
	cfg.NoTBKAS = true
	var err error
	if r.sub, err = subsystem.New(cfg); err != nil {
		t.Fatal(err)
	}
	r.base = r.sub.Server
	return r.listen(portals)
}

// listen adds portals, each with an access state of its own.
func (r *rig) listen(portals int) *rig {
	r.Cleanup(func() { _ = r.base.Close() })
	for i := range portals {
		n := uint16(i + 1)
		p, err := r.base.ListenPortal("127.0.0.1:0", target.PortalConfig{TPGT: n, Group: n})
		if err != nil {
			r.Fatal(err)
		}
		r.portals = append(r.portals, p)
	}
	return newRigOver(r)
}

// newRigOver is another client of the same target, as after a restart.
func newRigOver(old *rig) *rig {
	r := &rig{T: old.T, base: old.base, srv: old.srv, sub: old.sub, foreign: old.foreign, ram: old.ram, portals: old.portals,
		status: map[*blk.Request]blk.Status{}}
	for i := range uint32(64) {
		r.free = append(r.free, i)
	}
	return r
}

// killedState copies the state directory: what a kill -9 at this moment leaves.
func (r *rig) killedState(cfg device.Config) string {
	r.Helper()
	dir, err := os.MkdirTemp("", "dev")
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, pattern := range []string{"*.ledger", "*.json", "*.volume", "*.places", "*.reservation"} {
		files, _ := filepath.Glob(filepath.Join(cfg.StateDir, pattern))
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, filepath.Base(f)), b, 0o600)
			}
			if err != nil {
				r.Fatal(err)
			}
		}
	}
	return dir
}

func (r *rig) config() device.Config {
	dir, err := os.MkdirTemp("", "dev")
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = os.RemoveAll(dir) })
	cfg := device.Config{StateDir: dir, NoPathTimeout: datapath.Never, Protocol: r.protocol(),
		PathSelector: "round-robin", Events: r.event}
	cfg.Portals = r.addresses()
	return cfg
}

// foreign is a target that is not ours, over iSCSI.
type foreign struct {
	target  string
	portals []string
}

// name is the iSCSI target's.
func (r *rig) name() string {
	if r.foreign != nil {
		return r.foreign.target
	}
	return r.srv.Name()
}

func (r *rig) addresses() (all []string) {
	if r.foreign != nil {
		return r.foreign.portals
	}
	for _, p := range r.portals {
		all = append(all, p.Addr())
	}
	return all
}

func mustLUN(t *testing.T, s string) scsi.LUN {
	t.Helper()
	l, err := scsi.ParseLUN(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// open attaches the volume and waits until n paths are usable.
func (r *rig) open(cfg device.Config, n int) {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	if r.dev, err = device.Open(ctx, cfg); err != nil {
		r.Fatal(err)
	}
	if r.lane, err = r.dev.OpenLane(64); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		r.lane.Close()
		if r.base != nil {
			r.base.ClearFaults()
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = r.dev.Close(ctx)
	})
	r.until("paths usable", func() bool { return r.dev.Status().Usable >= n })
}

// until waits for something that an answer or an event brings about.
func (r *rig) until(what string, ok func() bool) {
	r.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			r.Fatalf("not in %v: %s; %+v", patience, what, r.dev.Status())
		case <-tick.C:
		}
	}
}

func (r *rig) event(e datapath.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *rig) saw(k datapath.EventKind) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == k {
			n++
		}
	}
	return n
}

func (r *rig) Flush() {}

func (r *rig) Complete(q *blk.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, twice := r.status[q]; twice {
		r.Error("a request was answered twice")
	}
	r.status[q] = q.Status
	r.free = append(r.free, q.Slot)
}

func (r *rig) answered(q *blk.Request) (blk.Status, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	st, ok := r.status[q]
	return st, ok
}

func (r *rig) send(op blk.Op, off uint64, n int, v uint64) *blk.Request {
	r.mu.Lock()
	slot := r.free[0]
	r.free = r.free[1:]
	r.mu.Unlock()
	q := &blk.Request{Op: op, Slot: slot, Off: off, Len: uint32(n), Owner: r}
	if op == blk.Read || op == blk.Write {
		q.Buf = make([]byte, n)
		for i := 0; i+8 <= n; i += 8 {
			binary.LittleEndian.PutUint64(q.Buf[i:], v)
		}
	}
	r.lane.Submit(q)
	return q
}

func (r *rig) do(op blk.Op, off uint64, n int, v uint64) *blk.Request {
	r.Helper()
	q := r.send(op, off, n, v)
	r.until(op.String()+" answered", func() bool { _, ok := r.answered(q); return ok })
	return q
}

// content is the first word of the store at off.
func (r *rig) content(off uint64) uint64 {
	b := make([]byte, 8)
	if err := r.ram.ReadAt(b, off); err != nil {
		r.Fatal(err)
	}
	return binary.LittleEndian.Uint64(b)
}
