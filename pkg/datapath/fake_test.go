package datapath

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/pathsel"
)

const testBlock = 512

// disk is the device behind all paths: per block the number of the write that
// it holds.
type disk struct {
	mu     sync.Mutex
	blocks []uint64
}

// image is what a target does with a command: a copy, as a target has it.
type image struct {
	op   blk.Op
	off  uint64
	data []uint64 // write number of each block
	// until is when the target has certainly given it up: FenceBound after its
	// connection was lost. What a fence by time rests on.
	until time.Time
}

func (d *disk) execute(m image) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, v := range m.data {
		d.blocks[m.off/testBlock+uint64(i)] = v
	}
}

func (d *disk) read(off uint64, buf []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := 0; i < len(buf); i += testBlock {
		binary.LittleEndian.PutUint64(buf[i:], d.blocks[(off+uint64(i))/testBlock])
	}
}

// fakePath is the in-memory twin of a transport: its target does what the test
// says, when the test says so.
type fakePath struct {
	name  string
	disk  *disk
	facts Facts
	bound time.Duration

	mu       sync.Mutex
	refuse   error // Connect fails
	room     int   // commands taken at once
	auto     bool  // executes and answers by itself
	q        *fakeQueue
	stale    []image // received from dead connections, may still execute
	connects int
	proofs   int // ProveDead succeeds that often
	taken    int // commands taken
}

type fakeQueue struct {
	p       *fakePath
	sink    blk.Sink
	dead    bool
	orphan  bool // its process was killed
	gated   bool
	pending []*fakeCmd
}

type fakeCmd struct {
	c      *blk.Command
	m      image
	kicked bool
}

func newFakePath(name string, d *disk) *fakePath {
	return &fakePath{name: name, disk: d, bound: 15 * time.Second, room: 64,
		facts: Facts{Identity: Identity{Target: "iqn.t", Device: "naa.1", Serial: "s", BlockSize: testBlock}, Proof: true,
			Limits: blk.Limits{BlockSize: testBlock, Size: uint64(len(d.blocks)) * testBlock, MaxTransfer: 64 << 10,
				MaxUnmap: 1 << 20, MaxZero: 1 << 20, FUA: true, WriteCache: true}}}
}

func (p *fakePath) Name() string              { return p.name }
func (p *fakePath) FenceBound() time.Duration { return p.bound }

func (p *fakePath) Connect(_ context.Context, sink blk.Sink) (Queue, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.connects++
	if p.refuse != nil {
		return nil, p.refuse
	}
	if p.facts.Proof {
		p.stale = nil // the target ends the old session's tasks before it answers
	}
	p.q = &fakeQueue{p: p, sink: sink}
	return p.q, nil
}

func (p *fakePath) ProveDead(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proofs == 0 {
		return ErrNoProof
	}
	p.proofs--
	p.stale = nil
	return nil
}

func (q *fakeQueue) Facts() Facts                           { q.p.mu.Lock(); defer q.p.mu.Unlock(); return q.p.facts }
func (q *fakeQueue) Refresh(context.Context) (Facts, error) { return q.Facts(), nil }
func (q *fakeQueue) Stats() QueueStats                      { return QueueStats{} }
func (q *fakeQueue) Resume()                                { q.p.mu.Lock(); q.gated = false; q.p.mu.Unlock() }
func (q *fakeQueue) Abort(cause error)                      { q.p.loseQueue(q, cause, true) }

func (q *fakeQueue) Submit(c *blk.Command, _ int) bool {
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	if q.dead || len(q.pending) >= q.p.room {
		return false
	}
	q.p.taken++
	q.pending = append(q.pending, &fakeCmd{c: c})
	return true
}

// Kick puts the payload on the wire: from here on the target has its own copy.
func (q *fakeQueue) Kick() {
	q.p.mu.Lock()
	for _, f := range q.pending {
		if !f.kicked && !q.gated {
			f.kicked, f.m = true, imageOf(f.c)
		}
	}
	auto := q.p.auto
	q.p.mu.Unlock()
	if auto {
		go q.p.answerAll(q)
	}
}

func imageOf(c *blk.Command) image {
	m := image{op: c.Op, off: c.Off}
	for i := uint32(0); c.Op.Mutates() && i < c.Len; i += testBlock {
		var v uint64
		if c.Op == blk.Write {
			v = binary.LittleEndian.Uint64(c.Buf[i:])
		}
		m.data = append(m.data, v)
	}
	return m
}

// take removes the i-th command that is on the wire.
func (q *fakeQueue) take(i int) *fakeCmd {
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	for k, f := range q.pending {
		if !f.kicked {
			continue
		}
		if i == 0 {
			q.pending = append(q.pending[:k], q.pending[k+1:]...)
			return f
		}
		i--
	}
	return nil
}

func (q *fakeQueue) Close(context.Context) error {
	q.p.mu.Lock()
	orphan := q.orphan
	q.p.mu.Unlock()
	if orphan {
		q.sink.Lost(nil, errors.New("killed"))
		return nil
	}
	q.p.loseQueue(q, errors.New("closed"), false)
	return nil
}

// kill ends the connection as the death of the process does: nobody is told,
// what was on the wire stays inside the target.
func (p *fakePath) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.q
	if q == nil {
		return
	}
	q.dead, q.orphan, p.q = true, true, nil
	for _, f := range q.pending {
		if f.kicked && f.c.Op.Mutates() {
			f.m.until = time.Now().Add(p.bound)
			p.stale = append(p.stale, f.m)
		}
	}
	q.pending = nil
}

// answer executes and answers the i-th command on the wire with a verdict.
func (p *fakePath) answer(i int, v blk.Verdict) bool {
	p.mu.Lock()
	q := p.q
	p.mu.Unlock()
	if q == nil {
		return false
	}
	f := q.take(i)
	if f == nil {
		return false
	}
	if v.Class == blk.Good {
		p.disk.execute(f.m)
		if f.c.Op == blk.Read {
			p.disk.read(f.c.Off, f.c.Buf)
		}
	}
	f.c.Verdict = v
	if v.Evidence != 0 {
		q.sink.Evidence(v.Evidence)
	}
	q.sink.Complete(f.c)
	q.sink.BatchEnd()
	return true
}

func (p *fakePath) answerAll(q *fakeQueue) {
	for {
		f := q.take(0)
		if f == nil {
			return
		}
		p.disk.execute(f.m)
		if f.c.Op == blk.Read {
			p.disk.read(f.c.Off, f.c.Buf)
		}
		f.c.Verdict = blk.Verdict{}
		q.sink.Complete(f.c)
		q.sink.BatchEnd()
	}
}

// lose kills the current connection. keep: what was on the wire stays inside
// the target and may execute later.
func (p *fakePath) lose(cause error, keep bool) {
	p.mu.Lock()
	q := p.q
	p.mu.Unlock()
	if q != nil {
		p.loseQueue(q, cause, keep)
	}
}

func (p *fakePath) loseQueue(q *fakeQueue, cause error, keep bool) {
	p.mu.Lock()
	if q.dead {
		p.mu.Unlock()
		return
	}
	q.dead = true
	if p.q == q {
		p.q = nil
	}
	var first, last *blk.Command
	for _, f := range q.pending {
		f.c.Sent = f.kicked
		f.c.Next = nil
		if f.kicked && keep && f.c.Op.Mutates() {
			f.m.until = time.Now().Add(p.bound)
			p.stale = append(p.stale, f.m)
		}
		if last == nil {
			first = f.c
		} else {
			last.Next = f.c
		}
		last = f.c
	}
	q.pending = nil
	p.mu.Unlock()
	q.sink.Lost(first, cause)
}

// late lets the target execute one write of a dead connection.
func (p *fakePath) late(i int) {
	p.mu.Lock()
	if i >= len(p.stale) {
		p.mu.Unlock()
		return
	}
	m := p.stale[i]
	p.stale = append(p.stale[:i], p.stale[i+1:]...)
	p.mu.Unlock()
	if time.Now().Before(m.until) {
		p.disk.execute(m)
	}
}

// evidence reports a unit attention that came with no command.
func (p *fakePath) evidence(e blk.Evidence) {
	p.mu.Lock()
	q := p.q
	p.mu.Unlock()
	q.sink.Evidence(e)
}

func (p *fakePath) set(f func()) { p.mu.Lock(); f(); p.mu.Unlock() }

func (p *fakePath) count() (onWire, taken int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.q != nil {
		for _, f := range p.q.pending {
			if f.kicked {
				onWire++
			}
		}
	}
	return onWire, p.taken
}

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
	r := c.make(op, uint64(block)*testBlock, uint32(n)*testBlock, flags)
	if r.Buf != nil {
		for i := 0; i < len(r.Buf); i += testBlock {
			binary.LittleEndian.PutUint64(r.Buf[i:], value)
		}
	}
	c.lane.Submit(r)
	return r
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
			for k := range l.slots {
				if q := l.slots[k].req; q != nil {
					q.Owner = nobody
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
