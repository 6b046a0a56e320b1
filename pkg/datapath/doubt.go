package datapath

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// doubtState says what the client was told about an in-doubt request.
type doubtState uint8

const (
	pending   doubtState = iota // not answered yet
	told                        // answered OK: a late copy changes nothing
	unsettled                   // answered with an error, or cancelled: reads must wait
)

// doubt is one write-class request that was sent on a lost path and not
// answered there. It lives until that path is fenced, whatever becomes of the
// request (I3).
type doubt struct {
	seq      uint64 // age: order of sending within a loss, losses in order
	op       blk.Op
	off, end uint64
	from     uint64 // lane<<32 | slot of the request, for the ledger
	owner    *slot  // nil once the request was answered
	state    doubtState
	// orphan: left by a dead process and not answered; its replay, a request
	// equal in operation and range, takes it over, once.
	orphan bool
	fence  *fence

	rec      *record // where the ledger holds it; nil when it has no room
	recIndex uint32
}

func (d *doubt) overlaps(off, end uint64) bool { return d.off < end && off < d.end }

// fence is the obligation to know that one lost incarnation can write no more.
type fence struct {
	path     *Path
	inc      uint32
	deadline time.Time
	entries  int
	timer    *time.Timer
	done     chan struct{} // closed when resolved
	how      FenceProof
}

// FenceProof says how a fence was resolved.
type FenceProof uint8

// The proofs, in the order of I3.
const (
	NotFenced   FenceProof = iota
	ByReconnect            // the path's own login made the target end the old tasks
	ByProof                // a proof that did not need the path's own portal
	ByTime                 // the clock decided
)

var proofNames = [...]string{"pending", "by reinstatement", "by proof elsewhere", "by time"}

// String names the proof as events print it.
func (p FenceProof) String() string { return proofNames[p] }

// doubts is the registry of a device.
//
// active is read on every write without a lock; everything else is under mu,
// which is taken only while something is in doubt. Lock order: a caller may
// hold the device's control lock; mu is the innermost lock.
type doubts struct {
	active atomic.Int64 // entries not yet fenced, and closed lanes not yet idle

	mu      sync.Mutex
	dev     *Device
	seq     uint64
	entries []*doubt
	fences  []*fence
	waiting []*slot // requests held back, each re-examined at every change
	shut    bool    // the device is gone: the ledger may belong to another now
	held    []*slot // answered requests whose answer is withheld (multi-writer)
}

// register enters every write-class command that may have reached the wire,
// the whole range of its request, in the order they were sent.
func (d *doubts) register(lv *live, first *blk.Command) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var f *fence
	for c := first; c != nil; c = c.Next {
		if !c.Op.Mutates() {
			continue
		}
		s := lv.dev.slotOf(c)
		if c.Sent && (f == nil || s.fence != f) {
			if f == nil {
				f = d.newFence(lv.path, lv.inc)
			}
			for m := s; m != nil; m = m.more { // each member of a unit
				m.fence = f
				d.add(m, f)
			}
		}
		s.clearUnit() // in doubt and on record, or never sent: not in flight
	}
}

func (d *doubts) newFence(p *Path, inc uint32) *fence {
	bound := p.tr.FenceBound()
	f := &fence{path: p, inc: inc, deadline: time.Now().Add(bound), done: make(chan struct{})}
	f.timer = time.AfterFunc(bound, func() { d.resolve(f, ByTime) })
	d.fences = append(d.fences, f)
	p.fences.Add(1)
	return f
}

func (d *doubts) add(s *slot, f *fence) {
	d.enter(&doubt{op: s.req.Op, off: s.req.Off, end: s.req.End(), from: s.origin(),
		owner: s, fence: f})
	s.inDoubt.Add(1)
}

func (d *doubts) enter(e *doubt) {
	d.seq++
	e.seq = d.seq
	d.entries = append(d.entries, e)
	e.fence.entries++
	d.dev.ledger.note(e, e.fence.path.index)
	d.active.Add(1) // before any look at the in-flight table: see entry
}

// admit decides whether a request may be sent now, while something is in
// doubt. If yes and it is write-class, it is published under the lock. If not,
// it waits in the registry and comes back through its lane's inbox.
func (d *doubts) admit(s *slot, lv *live) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.req.Op.Mutates() && s.inDoubt.Load() == 0 {
		d.adopt(s)
	}
	if d.blocked(s) {
		s.phase = waiting
		d.waiting = append(d.waiting, s)
		return false
	}
	if s.req.Op.Mutates() {
		s.entry().publish(s.req, lv)
	}
	return true
}

// blocked is the rule of I3.
func (d *doubts) blocked(s *slot) bool {
	r := s.req
	if s.lane.closed.Load() {
		return true // taken back by launch: nothing goes out that nobody would wait for
	}
	if r.Op == blk.Flush {
		return false
	}
	if r.Op == blk.Read {
		return slices.ContainsFunc(d.entries, func(e *doubt) bool {
			return e.state == unsettled && e.overlaps(r.Off, r.End())
		}) || d.dev.orphaned(r)
	}
	oldest := ^uint64(0) // a new request is younger than every doubt
	for _, e := range d.entries {
		if e.owner == s {
			oldest = min(oldest, e.seq)
		}
	}
	for _, e := range d.entries {
		if e.owner != s && e.seq < oldest && e.overlaps(r.Off, r.End()) {
			return true
		}
	}
	if oldest == ^uint64(0) {
		return d.dev.orphaned(r)
	}
	return d.dev.writeInFlight(s)
}

// adopt makes s the owner of what a dead process left of the same request: it
// is that request's replay, and may go at once where a new one must wait. Once
// per request left. Two requests left that look the same can not be told
// apart: nobody adopts them, and their replays wait for the fences.
func (d *doubts) adopt(s *slot) {
	r := s.req
	var mine []*doubt
	for _, e := range d.entries {
		if !e.orphan || e.op != r.Op || e.off != r.Off || e.end != r.End() {
			continue
		}
		if len(mine) > 0 && e.from != mine[0].from {
			return
		}
		mine = append(mine, e)
	}
	for _, e := range mine {
		e.orphan, e.owner = false, s
		e.from = s.origin() // so that the next process sees one request, not two
		if e.rec != nil {
			e.rec.from.Store(e.from)
		}
		s.inDoubt.Add(1)
	}
}

// settle records what the client is about to be told about an in-doubt
// request. It reports whether the answer must be withheld until the fence.
func (d *doubts) settle(s *slot, st blk.Status) (withhold bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.inDoubt.Load() == 0 {
		return false
	}
	if st == blk.OK && d.dev.cfg.MultiWriter {
		s.status = st
		d.held = append(d.held, s)
		return true
	}
	for _, e := range d.entries {
		if e.owner != s {
			continue
		}
		e.owner = nil
		e.state = told
		if st != blk.OK {
			e.state = unsettled
		}
		if e.rec != nil {
			e.rec.setState(e.state)
		}
	}
	s.inDoubt.Store(0)
	return false
}

// resolve ends a fence: its entries go, and who waited is examined again.
// Resolving twice is harmless; the first proof counts.
func (d *doubts) resolve(f *fence, how FenceProof) {
	d.mu.Lock()
	if f.how != NotFenced || d.shut {
		d.mu.Unlock()
		return
	}
	f.how = how
	f.timer.Stop()
	d.fences = slices.DeleteFunc(d.fences, func(x *fence) bool { return x == f })
	f.path.fences.Add(-1)
	gone := 0
	d.entries = slices.DeleteFunc(d.entries, func(e *doubt) bool {
		if e.fence != f {
			return false
		}
		if e.owner != nil {
			e.owner.inDoubt.Add(-1)
		}
		d.dev.ledger.forget(e)
		gone++
		return true
	})
	d.active.Add(int64(-gone))
	free := d.takeHeld()
	woken := d.takeWaiting()
	d.mu.Unlock()
	for _, s := range free {
		s.lane.answer(s, s.status)
		s.lane.flushAnswers()
	}
	requeue(woken)
	close(f.done)
	d.dev.fenced(f)
}

// end stops the clocks of what is still in doubt; the ledger keeps it for the
// next device. It returns the requests whose answer was withheld.
func (d *doubts) end() (held []*slot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = true
	for _, f := range d.fences {
		f.timer.Stop()
	}
	held, d.held = d.held, nil
	return held
}

// resolvePath resolves every fence of a path.
func (d *doubts) resolvePath(p *Path, how FenceProof) {
	for _, f := range d.pathFences(p) {
		d.resolve(f, how)
	}
}

func (d *doubts) pathFences(p *Path) (out []*fence) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.fences {
		if f.path == p {
			out = append(out, f)
		}
	}
	return out
}

// wake examines everybody again: a write that a retry waited for was answered.
func (d *doubts) wake() {
	d.mu.Lock()
	woken := d.takeWaiting()
	d.mu.Unlock()
	requeue(woken)
}

func (d *doubts) takeWaiting() []*slot {
	w := d.waiting
	d.waiting = nil
	return w
}

// takeHeld takes the withheld answers that no fence keeps back any more.
func (d *doubts) takeHeld() (free []*slot) {
	d.held = slices.DeleteFunc(d.held, func(s *slot) bool {
		ok := s.inDoubt.Load() == 0
		if ok {
			free = append(free, s)
		}
		return ok
	})
	return free
}

// count returns the fences pending, the waiting requests and the ranges in
// doubt, for status.
func (d *doubts) count() (fences, waiting, ranges int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.fences), len(d.waiting), len(d.entries)
}

func requeue(slots []*slot) {
	for _, s := range slots {
		s.lane.inbox.Push(s.req)
		s.lane.kick()
	}
}
