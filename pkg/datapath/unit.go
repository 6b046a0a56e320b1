package datapath

import (
	"sync/atomic"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/merge"
)

// A unit is one or more contiguous requests that go to a path as one command
// (package merge). Its first slot leads it: it is queued, sent and completed
// for all. The others are joined to it, linked by more. Every member has its
// own place in the in-flight table, its own doubt and its own answer; a unit
// that fails falls apart, and each member goes on alone.

// arrive puts a new request into the queue, or joins it to a unit there.
func (l *Lane) arrive(s *slot) {
	if !l.mergeable(s.req) {
		if s.req.Op != blk.Read && s.req.Op != blk.Write || s.req.Flags&blk.FUA != 0 {
			l.barrier()
		}
		l.enqueue(s)
		return
	}
	leader, strm := l.plug.Add(int32(s.index), uint8(s.req.Op), s.req.Off, s.req.Len)
	s.strm = strm
	if l.plug.Busy(strm) {
		l.counts.contiguous.Add(1)
	}
	if leader == merge.None {
		l.enqueue(s)
		return
	}
	l.slots.at(uint32(leader)).join(s)
	l.counts.merged.Add(1)
}

// mergeCounts are what merging did on a lane. Written by its runner, read for
// status: a stale one is a moment old.
type mergeCounts struct {
	merged     atomic.Uint64 // requests that joined another
	contiguous atomic.Uint64 // requests that continued what was in flight
	holds      atomic.Uint64 // units held back
	heldFor    atomic.Uint64 // ns, of units that were sent
}

// noteSent tells the plug that a unit was sent. Its slot may be in use again.
func (l *Lane) noteSent(strm int8, token int32, heldAt int64) {
	now := int64(1)
	if l.dev.deadline.Load() > 0 {
		now = l.dev.now()
	}
	l.plug.Sent(strm, token, now)
	if heldAt != 0 {
		l.counts.heldFor.Add(uint64(max(now-heldAt, 0)))
	}
}

// intact: a unit that may go as one. While something is in doubt, and at the
// end of the device, each request is looked at by itself.
func (l *Lane) intact(s *slot) bool {
	return s.last == nil || l.dev.doubt.active.Load() == 0 && s.req.Off+uint64(s.total) <= l.dev.size.Load()
}

// mayJoin reports whether requests may join others at all, for one batch: not
// with merging off, nor with paths that would have every unit split again.
func (l *Lane) mayJoin() bool {
	return l.dev.deadline.Load() != mergeOff && l.dev.table.Load().joins()
}

// mergeable: small reads and writes without FUA, while nothing is in doubt.
func (l *Lane) mergeable(r *blk.Request) bool {
	return l.joins && r.Len <= mergeRequest && r.Flags == 0 && (r.Op == blk.Read || r.Op == blk.Write) &&
		l.dev.doubt.active.Load() == 0
}

// join makes m a member of the unit that s leads.
func (s *slot) join(m *slot) {
	m.phase = joined
	if s.last == nil {
		s.more, s.total = m, s.req.Len
		s.vec = append(s.vec[:0], s.req.Buf)
	} else {
		s.last.more = m
	}
	s.last = m
	s.total += m.req.Len
	s.vec = append(s.vec, m.req.Buf)
}

// size is how many bytes the unit that s leads has; a request alone is one too.
func (s *slot) size() uint32 {
	if s.last != nil {
		return s.total
	}
	return s.req.Len
}

// split takes a unit that is not sent apart: its members are queued behind its
// leader, in order, and join nothing any more.
func (l *Lane) split(s *slot) {
	l.plug.Forget(s.strm, int32(s.index))
	at := s.req
	for m := s.disband(); m != nil; {
		next := m.more
		m.more, m.strm, m.phase = nil, merge.None, queued
		m.req.Next, at.Next = at.Next, m.req
		if l.tail == at {
			l.tail = m.req
		}
		at, m = m.req, next
	}
	s.strm = merge.None
}

// share cuts a unit that is alone in the queue into one part for each path of
// the group: sent whole, it would leave the other paths idle.
func (l *Lane) share(s *slot, paths int) {
	if s.last == nil || paths < 2 || s.req.Next != nil {
		return
	}
	part := max(s.total/uint32(paths), mergeShare)
	for at := s; at != nil && at.total >= part+mergeShare; {
		next := at.cut(part)
		if next == nil {
			return
		}
		l.plug.Forget(s.strm, int32(s.index)) // what continues the last part must not join the first
		next.phase = queued
		at.req.Next = next.req
		l.tail = next.req
		at = next
	}
}

// cut keeps the members of s that come to n bytes, and makes the others a unit
// of their own, whose leader is returned; nil if there are none.
func (s *slot) cut(n uint32) *slot {
	have, kept := s.req.Len, 1
	end := s
	for ; have < n && end.more != nil; kept++ {
		end = end.more
		have += end.req.Len
	}
	lead := end.more
	if lead == nil {
		return nil
	}
	lead.last, lead.total = s.last, s.total-have
	lead.vec = append(lead.vec[:0], s.vec[kept:]...)
	if lead == s.last {
		lead.last = nil // alone
	}
	end.more = nil
	s.vec, s.total, s.last = s.vec[:kept], have, end
	if end == s {
		s.last = nil
	}
	return lead
}

// disband makes s a request alone and returns the others, linked by more.
func (s *slot) disband() *slot {
	m := s.more
	s.more, s.last = nil, nil
	return m
}

// hold keeps the head of the queue back for more of its stream (S4). True: it
// is out of the queue.
func (l *Lane) hold(s *slot) bool {
	d := l.dev.deadline.Load()
	if d <= 0 || s.strm == merge.None || s.again || l.over() {
		return false
	}
	now := l.dev.now()
	until := l.plug.Hold(s.strm, int32(s.index), now, d)
	if until == 0 {
		return false
	}
	l.pop()
	if s.heldAt == 0 {
		s.heldAt = max(now, 1)
		l.counts.holds.Add(1)
	}
	s.phase = held
	l.plugged = append(l.plugged, s)
	l.arm(until - now)
	return true
}

// barrier releases every unit that is held, and ends the growth of all.
func (l *Lane) barrier() {
	l.plug.Barrier()
	l.unplug()
}

// unplug puts what is held back into the queue, before the rest: launch asks
// again whether it waits.
func (l *Lane) unplug() {
	for i := len(l.plugged) - 1; i >= 0; i-- {
		l.pushFront(l.plugged[i])
	}
	l.plugged = l.plugged[:0]
}

// publishUnit publishes every member in the in-flight table.
func (s *slot) publishUnit(lv *live) {
	for m := s; m != nil; m = m.more {
		m.entry().publish(m.req, lv)
	}
}

func (s *slot) clearUnit() {
	for m := s; m != nil; m = m.more {
		m.entry().clear()
	}
}

// sendUnit sends a unit as one command.
func (l *Lane) sendUnit(s *slot, lv *live) bool {
	c := &s.cmds[0]
	s.fill(c, 0, s.req.Len, s.req.Op)
	c.Len, c.Buf, c.Vec = s.total, nil, s.vec
	s.result.Store(0)
	s.parts.Store(1)
	s.sent = s.total
	for m := s.more; m != nil; m = m.more {
		m.lv = lv
	}
	lv.loads[l.id].Start(s.total)
	if lv.q.Submit(c, int(l.id)) {
		return true
	}
	lv.loads[l.id].Cancel(s.total)
	s.sent = 0
	return false
}

// unitDone ends a unit. Path's reader, or whoever retires it. From the answer
// on a slot may be in use again, so its link is read before.
func (l *Lane) unitDone(s *slot) {
	good := s.result.Load() == 0
	if !good && s.req.Op.Mutates() {
		s.clearUnit()
		l.dev.wakeDoubt()
	}
	result := s.result.Load()
	for m, rest := s, s.disband(); m != nil; {
		if good {
			l.answer(m, blk.OK)
		} else {
			m.phase = landed
			m.result.Store(result)
			l.inbox.Push(m.req)
		}
		if m = rest; m != nil {
			rest, m.more = m.more, nil
		}
	}
}
