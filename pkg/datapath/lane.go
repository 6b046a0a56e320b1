package datapath

// The life of a request through a lane, in the order of this file:
//
//  1. Submit          pushes the batch to the inbox           (client's goroutine)
//  2. kick            the first to come becomes the runner     (anybody)
//  3. drain           takes the inbox in, then sends the queue (runner)
//  4. launch          path, doubt check (I3), parts, tags      (runner, send.go)
//  5. partDone        one answer of a path                     (path's reader)
//  6. answer          back to the client                       (path's reader)
//     or landed       back to the inbox, then judge            (runner, retry.go)

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/merge"
	"github.com/csi-mpath/csi-mpath/pkg/mpsc"
	"github.com/csi-mpath/csi-mpath/pkg/pathsel"
)

// Lane carries the requests of one client connection.
//
// The runner's fields belong to whoever holds the runner flag wip. inbox is
// filled by anybody. outstanding is added to in Submit and subtracted by
// whoever answers; congested is set by the runner and read by path readers (a
// stale read costs one run of the ticker at most, see launchAll).
type Lane struct {
	dev     *Device
	id      uint32
	slots   slots
	entries []entry                       // this lane's part of the in-flight table
	owner   atomic.Pointer[blk.Completer] // the connection, set by its first Submit

	congested atomic.Bool
	closed    atomic.Bool
	freed     atomic.Bool
	_         [64]byte // what changes with each batch is apart from what does not

	inbox       mpsc.Queue[blk.Request, *blk.Request]
	wip         atomic.Int64
	_           [48]byte
	outstanding atomic.Int64
	spared      atomic.Uint64 // batch ends that did not have to run it: nothing waited
	_           [48]byte

	// The runner's.
	head, tail *blk.Request     // to be sent, in order
	again      []*slot          // to be sent once more, before the others
	late       []*slot          // delayed
	timer      *time.Timer      // runs the lane when the next of late is due
	selector   pathsel.Selector // of this batch
	pick       pathsel.State
	others     others  // loads for pick
	dirty      []*live // queues submitted to and not yet kicked
	answered   bool    // the runner itself answered something

	// Merging. plug is the runner's but for what it says; due is set by path
	// readers for the runner: what is held may go.
	plug    merge.Plug
	due     atomic.Bool
	plugged []*slot   // held
	joins   bool      // requests that arrive now may join others
	armed   time.Time // when timer runs, zero if it does not
	counts  mergeCounts
}

// Submit takes a batch linked by Next. It never blocks. Every request is
// answered exactly once through its Owner (I2).
func (l *Lane) Submit(first *blk.Request) {
	last, n := first, int64(1)
	for last.Next != nil {
		last = last.Next
		n++
	}
	if l.owner.Load() == nil {
		owner := first.Owner
		l.owner.Store(&owner)
	}
	l.outstanding.Add(n)
	l.inbox.PushChain(first, last)
	l.kick()
}

// Close says that the connection is gone: what is not on a wire is cancelled,
// what is will be answered when its path says so (I2). Nothing may be
// submitted after it.
func (l *Lane) Close() {
	if l.closed.Swap(true) {
		return
	}
	l.dev.doubt.active.Add(1) // until it is idle: see orphaned
	l.kick()
	l.dev.doubt.wake()
	l.release()
}

// kick runs the lane, or makes its runner run it once more.
func (l *Lane) kick() {
	if l.wip.Add(1) != 1 {
		return
	}
	for n := int64(1); ; {
		l.drain()
		if l.wip.CompareAndSwap(n, 0) {
			return
		}
		n = l.wip.Load()
	}
}

func (l *Lane) drain() {
	l.armed = time.Time{}
	if l.due.Load() {
		l.due.Store(false)
	}
	if r := l.inbox.Drain(); r != nil {
		l.joins = l.mayJoin()
		l.takeAll(r)
	}
	if len(l.late) > 0 {
		l.takeDue()
	}
	if len(l.plugged) > 0 {
		l.unplug()
	}
	for i := len(l.again) - 1; i >= 0; i-- {
		l.pushFront(l.again[i])
	}
	l.again = l.again[:0]
	if l.head != nil {
		l.launchAll()
	}
	if l.answered {
		l.answered = false
		l.flushAnswers()
	}
}

func (l *Lane) takeAll(r *blk.Request) {
	for r != nil {
		next := r.Next
		r.Next = nil
		l.take(r)
		r = next
	}
}

// take looks at one request out of the inbox.
func (l *Lane) take(r *blk.Request) {
	s := l.slot(r.Slot)
	switch s.phase {
	case idle:
		s.begin(r)
		if r.Op == blk.Flush {
			s.cover = l.dev.flushBegins()
		}
		l.arrive(s)
	case waiting:
		l.enqueue(s)
	case landed:
		l.judge(s)
	default:
		panic("datapath: BUG: request in the inbox while it is " + phaseNames[s.phase])
	}
}

var phaseNames = [...]string{"idle", "queued", "flying", "landed", "waiting", "delayed", "held", "joined"}

func (l *Lane) enqueue(s *slot) {
	s.phase = queued
	s.req.Next = nil
	if l.tail == nil {
		l.head, l.tail = s.req, s.req
		return
	}
	l.tail.Next = s.req
	l.tail = s.req
}

// retry sends a request again before those never sent; several keep their order.
func (l *Lane) retry(s *slot) {
	s.phase = queued
	l.again = append(l.again, s)
}

func (l *Lane) pushFront(s *slot) {
	s.phase = queued
	s.req.Next = l.head
	l.head = s.req
	if l.tail == nil {
		l.tail = s.req
	}
}

// over reports that requests of the lane wait for nothing any more.
func (l *Lane) over() bool { return l.closed.Load() || l.dev.mode.Load()&modeShutdown != 0 }

func (l *Lane) takeDue() {
	now := time.Now()
	over := l.over()
	next := time.Time{}
	l.late = slices.DeleteFunc(l.late, func(s *slot) bool {
		if over || !s.due.After(now) {
			l.enqueue(s)
			return true
		}
		if next.IsZero() || s.due.Before(next) {
			next = s.due
		}
		return false
	})
	if !next.IsZero() {
		l.arm(int64(next.Sub(now)))
	}
}

// arm makes the timer run the lane in d ns at the latest: early for others at
// most, each looks for itself whether it is due.
func (l *Lane) arm(d int64) {
	at := time.Now().Add(time.Duration(d))
	if l.armed.IsZero() || at.Before(l.armed) {
		l.armed = at
		l.timer.Reset(time.Duration(d))
	}
}

// later holds a request back for d.
func (l *Lane) later(s *slot, d time.Duration) {
	s.phase = delayed
	s.due = time.Now().Add(d)
	l.late = append(l.late, s)
	l.arm(int64(d))
}

// partDone counts one part's verdict in. Path's reader, or whoever retires it.
func (l *Lane) partDone(s *slot, v blk.Verdict) {
	if v.Class != blk.Good {
		s.note(v)
	}
	if !s.several || s.parts.Add(-1) == 0 {
		l.waveDone(s)
	}
}

// waveDone ends a wave: the answer, if all of the request is done and good;
// otherwise the runner decides.
func (l *Lane) waveDone(s *slot) {
	if l.plug.Done(s.strm) {
		l.due.Store(true)
	}
	if s.last != nil {
		l.unitDone(s)
		return
	}
	if s.result.Load() == 0 && s.sent == s.req.Len && !s.wantsSync() {
		l.answer(s, blk.OK)
		return
	}
	if s.req.Op.Mutates() {
		// Nothing of it is on a wire until the next wave, which may have to wait
		// itself. A retry may wait for this one.
		s.entry().clear()
		l.dev.wakeDoubt()
	}
	s.phase = landed
	l.inbox.Push(s.req)
}

// answer gives the request back to its client, exactly once (I2). Flushed by
// the caller's batch end.
func (l *Lane) answer(s *slot, st blk.Status) {
	r, owner := s.req, s.req.Owner
	mutates := r.Op.Mutates()
	if mutates {
		s.entry().clear()
		if s.inDoubt.Load() != 0 && l.dev.doubt.settle(s, st) {
			return // withheld until the fence
		}
	}
	st = l.dev.account(s, st)
	s.req, s.lv = nil, nil
	s.phase = idle
	r.Status = st
	owner.Complete(r)
	if l.closed.Load() {
		owner.Flush() // nobody else does, once the lane has no batches any more
	}
	if mutates {
		l.dev.wakeDoubt()
	}
	if l.outstanding.Add(-1) == 0 && l.closed.Load() {
		l.release()
	}
}

// reply answers from the runner.
func (l *Lane) reply(s *slot, st blk.Status) {
	l.answered = true
	l.answer(s, st)
}

func (l *Lane) flushAnswers() {
	if o := l.owner.Load(); o != nil {
		(*o).Flush()
	}
}

// release frees the lane's place in the device once it is closed and idle.
func (l *Lane) release() {
	if l.closed.Load() && l.outstanding.Load() == 0 && !l.freed.Swap(true) {
		l.flushAnswers() // the batch end of the last answers will not find the lane
		l.dev.freeLane(l)
		l.dev.doubt.active.Add(-1)
	}
}
