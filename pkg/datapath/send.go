package datapath

import (
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/merge"
)

// outcome of trying to send one request.
type outcome uint8

const (
	gone   outcome = iota // sent, answered, or held elsewhere
	noRoom                // every usable path is full
	noPath                // no path is usable now
)

// launchAll sends the queue in order, until no path has room.
//
// When it stops for want of room it sets congested first and then tries once
// more: an answer that came between the refusal and the flag would otherwise
// wake nobody.
func (l *Lane) launchAll() {
	t := l.dev.table.Load()
	group := t.best()
	if l.dev.resting.Load() {
		l.dev.wakeJudge()
	}
	l.beginBatch(group)
	for retried := false; l.head != nil; {
		switch l.launch(l.slots.at(l.head.Slot), group) {
		case gone:
			if l.congested.Load() {
				l.congested.Store(false)
			}
			retried = false
		case noPath:
			l.kickQueues()
			return
		case noRoom:
			l.kickQueues()
			if retried {
				l.watchRoom(group)
				return
			}
			l.congested.Store(true)
			retried = true
		}
	}
	l.kickQueues()
}

// launch tries to send the head of the queue.
func (l *Lane) launch(s *slot, group []*live) outcome {
	over := l.closed.Load()
	st := l.dev.refusal(s.req, len(group) > 0)
	if s.strm != merge.None && (over || st != blk.OK || !l.intact(s)) {
		l.split(s)
	}
	if over {
		l.pop()
		l.reply(s, blk.Cancelled)
		return gone
	}
	if st != blk.OK {
		l.pop()
		l.reply(s, st)
		return gone
	}
	if len(group) == 0 {
		return noPath
	}
	if l.hold(s) {
		return gone
	}
	l.share(s, len(group))
	if s.req.Op == blk.Trim && group[0].facts.Limits.MaxUnmap == 0 {
		l.pop()
		l.reply(s, blk.OK) // advice the device can not take
		return gone
	}
	var avoid uint32
	if s.avoid != nil {
		avoid = avoidMask(group, s.avoid)
	}
	for range group {
		i := l.selector.Pick(&l.pick, s.size(), avoid)
		if i < 0 {
			break
		}
		avoid |= 1 << i
		switch l.try(s, group[i]) {
		case gone:
			return gone
		case noPath:
			return noPath
		}
	}
	return noRoom
}

// avoidMask keeps a request off one path, unless it is the only one.
func avoidMask(group []*live, bad *live) uint32 {
	if i := slices.Index(group, bad); i >= 0 && len(group) > 1 {
		return 1 << i
	}
	return 0
}

// try sends one request on one path; it is back at the head of the queue if
// the path takes no part of it.
func (l *Lane) try(s *slot, lv *live) outcome {
	if lv.full() {
		return noRoom
	}
	if size, _ := s.partSize(lv); s.last != nil && (uint64(s.total) > size || !lv.facts.Vectors) {
		l.split(s)
	}
	l.pop() // before the registry may have it: then it is not ours any more
	if !l.clearOfDoubt(s, lv) {
		return gone
	}
	s.phase, s.lv = flying, lv
	strm, token, heldAt := s.strm, int32(s.index), s.heldAt // the answer may come before we look again
	if !l.sendWave(s, lv) {
		if s.req.Op.Mutates() {
			s.clearUnit()
			l.dev.wakeDoubt()
		}
		l.pushFront(s)
		return noRoom
	}
	if strm != merge.None {
		l.noteSent(strm, token, heldAt)
	}
	if !slices.Contains(l.dirty, lv) {
		l.dirty = append(l.dirty, lv)
	}
	return gone
}

// clearOfDoubt publishes a write-class request in the in-flight table and
// checks it against what is in doubt (I3). False: the registry holds it now.
// Costs one store and one load while nothing is in doubt.
func (l *Lane) clearOfDoubt(s *slot, lv *live) bool {
	d := &l.dev.doubt
	if d.active.Load() == 0 || l.dev.guardOff {
		if !s.req.Op.Mutates() {
			return true
		}
		s.publishUnit(lv)
		if d.active.Load() == 0 || l.dev.guardOff {
			return true
		}
		// A path was lost between the two looks. A retry may have seen this
		// entry for a moment and wait for it.
		s.clearUnit()
		d.wake()
	}
	if s.last != nil { // its members are judged one by one
		l.pushFront(s)
		l.split(s)
		return false
	}
	l.plug.Forget(s.strm, int32(s.index))
	if d.admit(s, lv) {
		return true
	}
	if l.over() {
		d.wake() // closed since launch looked: whoever closed it may have woken before
	}
	return false
}

// sendWave submits the next parts of the request, as many as the path takes.
// False: it took none. parts holds a guard of one meanwhile, so that the wave
// can not end under the submitter.
func (l *Lane) sendWave(s *slot, lv *live) bool {
	if s.last != nil {
		return l.sendUnit(s, lv)
	}
	size, op := s.partSize(lv)
	left := s.req.Len - s.sent
	if left == 0 && s.req.Op != blk.Flush {
		op, s.synced = blk.Flush, true // the data is written: now FUA's flush
	}
	if uint64(left) <= size {
		return l.sendOne(s, lv, op, left)
	}
	n := min((uint64(left)+size-1)/size, maxWave)
	if uint64(len(s.cmds)) < n {
		s.cmds = make([]blk.Command, n)
	}
	s.clearResult()
	s.several = true
	s.parts.Store(1)
	taken := false
	for i := range s.cmds[:n] {
		k := uint32(min(size, uint64(s.req.Len-s.sent)))
		s.fill(&s.cmds[i], s.sent, k, op)
		s.parts.Add(1)
		lv.loads[l.id].Start(k)
		s.sent += k
		if !lv.q.Submit(&s.cmds[i], int(l.id)) {
			s.sent -= k
			lv.loads[l.id].Cancel(k)
			s.parts.Add(-1)
			break
		}
		taken = true
	}
	if s.parts.Add(-1) == 0 && taken {
		// It ended while we submitted (the path was lost): nobody else runs the lane.
		l.waveDone(s)
		l.answered = true
		l.wip.Add(1)
	}
	return taken
}

// sendOne is the usual case: the rest of the request in one command.
func (l *Lane) sendOne(s *slot, lv *live, op blk.Op, n uint32) bool {
	c := &s.cmds[0]
	s.fill(c, s.sent, n, op)
	s.clearResult()
	s.several = false
	s.sent += n
	lv.loads[l.id].Start(n)
	if lv.q.Submit(c, int(l.id)) {
		return true
	}
	lv.loads[l.id].Cancel(n)
	s.sent -= n
	return false
}

func (l *Lane) pop() {
	r := l.head
	l.head = r.Next
	if l.head == nil {
		l.tail = nil
	}
	r.Next = nil
}

func (l *Lane) kickQueues() {
	for i, lv := range l.dirty {
		lv.q.Kick(int(l.id))
		l.dirty[i] = nil
	}
	l.dirty = l.dirty[:0]
}

// watchRoom arms a timer when the lane waits for room and has nothing in
// flight whose answer would run it: others use the shared session's window.
func (l *Lane) watchRoom(group []*live) {
	for _, lv := range group {
		if n, _ := lv.loads[l.id].Read(); n > 0 {
			return
		}
	}
	l.arm(int64(roomPoll))
}
