package datapath

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/pathsel"
)

// client is a connection: it submits requests and remembers their answers.
type client struct {
	t    *testing.T
	lane *Lane
	mu   sync.Mutex
	free []uint32
	got  map[*blk.Request]int
	done func(r *blk.Request)
}

func newClient(t *testing.T, d *Device) *client {
	t.Helper()
	l, err := d.OpenLane(64)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, lane: l, got: map[*blk.Request]int{}}
	for i := range uint32(64) {
		c.free = append(c.free, i)
	}
	return c
}

func (c *client) Flush() {}

func (c *client) Complete(r *blk.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got[r]++
	if c.got[r] > 1 {
		c.t.Errorf("request %v answered twice", r.Op)
	}
	c.free = append(c.free, r.Slot)
	if c.done != nil {
		c.done(r)
	}
}

func (c *client) answered(r *blk.Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got[r] > 0
}

func (c *client) slot() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.free[0]
	c.free = c.free[1:]
	return s
}

func (c *client) make(op blk.Op, off uint64, n uint32, flags blk.Flags) *blk.Request {
	r := &blk.Request{Op: op, Flags: flags, Slot: c.slot(), Off: off, Len: n, Owner: c}
	if op == blk.Read || op == blk.Write {
		r.Buf = make([]byte, n)
	}
	return r
}

func (c *client) send(op blk.Op, block, n int, value uint64, flags blk.Flags) *blk.Request {
	r := c.prepare(op, block, n, value, flags)
	c.lane.Submit(r)
	return r
}

func (c *client) prepare(op blk.Op, block, n int, value uint64, flags blk.Flags) *blk.Request {
	r := c.make(op, uint64(block)*testBlock, uint32(n)*testBlock, flags)
	if r.Buf != nil {
		for i := 0; i < len(r.Buf); i += testBlock {
			binary.LittleEndian.PutUint64(r.Buf[i:], value)
		}
	}
	return r
}

// batch submits requests together.
func (c *client) batch(all ...*blk.Request) {
	for i := range all[1:] {
		all[i].Next = all[i+1]
	}
	c.lane.Submit(all[0])
}

func (c *client) write(block int, v uint64) *blk.Request { return c.send(blk.Write, block, 1, v, 0) }
func (c *client) read(block int) *blk.Request            { return c.send(blk.Read, block, 1, 0, 0) }

func value(r *blk.Request) uint64 { return binary.LittleEndian.Uint64(r.Buf) }

// rig is a device over fake paths, inside a synctest bubble.
type rig struct {
	*testing.T
	disk   *disk
	paths  []*fakePath
	dev    *Device
	events []Event
	mu     sync.Mutex
	cfg    Config
	ledger []byte
}

func (r *rig) transports() (out []Transport) {
	for _, p := range r.paths {
		out = append(out, p)
	}
	return out
}

// restart kills the process and starts the next one over its ledger. The old
// device's requests are never answered to anybody.
func (r *rig) restart() {
	r.Helper()
	synctest.Wait()
	left := newMem()
	copy(left, r.ledger)
	old := r.dev
	for _, p := range r.paths {
		p.kill()
	}
	for i := range old.lanes {
		if l := old.lanes[i].Load(); l != nil {
			nobody := blk.Completer(&nullClient{})
			l.owner.Store(&nobody)
			for _, c := range l.slots {
				for k := range slotChunk {
					if c == nil {
						break
					}
					if q := c.slots[k].req; q != nil {
						q.Owner = nobody
					}
				}
			}
		}
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	old.cfg.Events = nil
	_ = old.Close(ended)
	r.ledger = left
	r.cfg.Ledger = left
	for r.dev = nil; r.dev == nil; { // for as long as no path comes up
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		r.dev, _ = Open(ctx, r.cfg, r.transports())
		cancel()
		if r.dev == nil {
			r.paths[0].set(func() { r.paths[0].refuse = nil })
		}
	}
	r.dev.guardOff = old.guardOff
}

// newMem is aligned memory for a ledger.
func newMem() []byte {
	w := make([]uint64, LedgerSize/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), LedgerSize)
}

func (r *rig) saw(k EventKind) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == k {
			n++
		}
	}
	return n
}

// withDevice runs f in a bubble with a device over n paths that is closed after.
// Time in it is virtual: time.Sleep lets timers run, takes no time, and waits for
// nothing that a slow machine could delay. archtest allows it nowhere else.
func withDevice(t *testing.T, n int, change func(*Config, []*fakePath), f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, disk: &disk{blocks: make([]uint64, 64)}}
		cfg := Config{Name: "vol", NoPathTimeout: Never, Selector: pathsel.RoundRobin{},
			Events: func(e Event) { r.mu.Lock(); r.events = append(r.events, e); r.mu.Unlock() }}
		for i := range n {
			r.paths = append(r.paths, newFakePath(fmt.Sprint("p", i), r.disk))
		}
		if change != nil {
			change(&cfg, r.paths)
		}
		var err error
		r.cfg = cfg
		r.ledger = cfg.Ledger
		if r.dev, err = Open(t.Context(), cfg, r.transports()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		f(r)
		for _, p := range r.paths {
			p.set(func() { p.auto = true })
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = r.dev.Close(ctx)
	})
}
