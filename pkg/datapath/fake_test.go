package datapath

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
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

// fill answers a read, whose destination may be in pieces.
func (d *disk) fill(c *blk.Command) {
	for at := uint32(0); at < c.Len; {
		piece := c.Piece(at)
		d.read(c.Off+uint64(at), piece)
		at += uint32(len(piece))
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
	stats    QueueStats
	probe    time.Duration // how long a probe takes
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
				MaxUnmap: 1 << 20, MaxZero: 1 << 20, FUA: true, WriteCache: true}, Vectors: true}}
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
func (q *fakeQueue) Stats() QueueStats                      { q.p.mu.Lock(); defer q.p.mu.Unlock(); return q.p.stats }
func (q *fakeQueue) Resume()                                { q.p.mu.Lock(); q.gated = false; q.p.mu.Unlock() }
func (q *fakeQueue) Abort(cause error)                      { q.p.loseQueue(q, cause, true) }

func (q *fakeQueue) Probe(ctx context.Context) error {
	q.p.mu.Lock()
	t := time.NewTimer(q.p.probe)
	q.p.mu.Unlock()
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

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
func (q *fakeQueue) Kick(int) {
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
			v = binary.LittleEndian.Uint64(c.Piece(i))
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
			p.disk.fill(f.c)
		}
	}
	f.c.Verdict = v
	if v.Evidence != 0 {
		q.sink.Evidence(v.Evidence)
	}
	lane := f.c.LaneBit()
	q.sink.Complete(f.c)
	q.sink.BatchEnd(lane)
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
			p.disk.fill(f.c)
		}
		f.c.Verdict = blk.Verdict{}
		lane := f.c.LaneBit()
		q.sink.Complete(f.c)
		q.sink.BatchEnd(lane)
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
