package datapath

import (
	"math/bits"
	"sync/atomic"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/pathsel"
)

// live is one incarnation of a path, from Connect to Lost. It is the sink of
// its queue.
//
// Set before it is published and constant: path, inc, q. Under the device's
// control lock: facts, access, suspended. By the lanes' runners and the path's
// readers: loads, history, answered. By the judge alone: ended, moved.
// evidence is set by a reader and taken by the path's control goroutine; exposed
// is for an event: a count that is late by a command is as good.
//
// What every request reads comes first, apart from what every batch writes.
type live struct {
	path   *Path
	dev    *Device
	inc    uint32 // incarnation number, unique within the device, never 0
	q      Queue
	window atomic.Int64 // commands allowed in flight; shrinks on BUSY

	facts     Facts
	access    Access
	suspended bool   // identity in question: out of the table (I1)
	ended     uint64 // of all lanes, packed, as of the judge's last look
	moved     uint64 // bytes answered until then
	_         [64]byte

	loads    [MaxLanes]pathsel.Load
	history  pathsel.History
	answered atomic.Uint64 // of all lanes, packed, as of the last BatchEnd, if the selector needs it
	evidence atomic.Uint32 // blk.Evidence not yet handled
	exposed  atomic.Uint32 // commands in flight when the identity came into question, plus 1; 0: it did not
	_        [64]byte

	gone  chan struct{} // closed when Lost has been handled
	cause error         // why; valid after gone
}

// Complete implements blk.Sink.
func (lv *live) Complete(c *blk.Command) {
	l := lv.dev.lanes[c.Lane].Load()
	lv.loads[c.Lane].End(c.Len)
	l.partDone(l.slots.at(c.Slot), c.Verdict)
}

// BatchEnd implements blk.Sink: one answer flush and at most one run per lane.
func (lv *live) BatchEnd(lanes uint64) {
	if lv.dev.pathSelector().Needs() == pathsel.NeedsHistory {
		lv.history.Finished(lv.dev.now(), lv.takeAnswered())
	}
	for ; lanes != 0; lanes &= lanes - 1 {
		l := lv.dev.lanes[bits.TrailingZeros64(lanes)].Load()
		if l == nil {
			continue // closed, and its last answer was flushed as it went
		}
		l.flushAnswers()
		if l.congested.Load() || l.due.Load() || !l.inbox.Empty() {
			l.kick()
		} else {
			l.spared.Add(1)
		}
	}
}

// takeAnswered is how many answers came since it was last called.
func (lv *live) takeAnswered() int {
	total := lv.endedSum()
	since := total - lv.answered.Swap(total)
	if int64(since) < 0 {
		return 0 // another reader was here with a newer sum
	}
	commands, _ := pathsel.Unpack(since)
	return int(commands)
}

// endedSum is what all lanes' commands that have ended add up to, packed.
func (lv *live) endedSum() (packed uint64) {
	for i := range lv.loads[:lv.dev.laneTop.Load()] {
		packed += lv.loads[i].Ended()
	}
	return packed
}

// bytesMoved is how many bytes were answered so far. For the judge, which
// looks long before a difference could overflow.
func (lv *live) bytesMoved() uint64 {
	total := lv.endedSum()
	_, bytes := pathsel.Unpack(total - lv.ended)
	lv.ended = total
	lv.moved += bytes
	return lv.moved
}

// Evidence implements blk.Sink: it only leaves a mark and wakes the path's
// control goroutine. The queue has already stopped sending if the identity is
// in question.
func (lv *live) Evidence(e blk.Evidence) {
	if e&blk.CacheLost != 0 {
		lv.dev.cacheLost()
	}
	if uint32(e)&^lv.evidence.Load() == 0 {
		return
	}
	if e&blk.IdentityChanged != 0 {
		lv.question()
	}
	lv.evidence.Or(uint32(e))
	lv.path.poke()
}

// question notes how many commands are on their way to what may be another
// volume by now (I1).
func (lv *live) question() {
	n, _ := lv.inflight()
	lv.exposed.CompareAndSwap(0, uint32(n)+1)
}

// Lost implements blk.Sink. Order matters: first the path leaves the table,
// then every write it carried is registered as in doubt, and only then do the
// requests go on (I3).
func (lv *live) Lost(first *blk.Command, cause error) {
	grown := lv.dev.retire(lv, cause)
	lv.dev.doubt.register(lv, first)
	lanes := uint64(0)
	for c := first; c != nil; {
		next := c.Next
		c.Next = nil
		c.Verdict = blk.Verdict{Class: blk.PathLost, Status: blk.IOError}
		lanes |= c.LaneBit()
		lv.Complete(c)
		c = next
	}
	lv.BatchEnd(lanes)
	lv.dev.kickAll()
	lv.dev.announce(grown)
	close(lv.gone)
}

// inflight sums the path's load over all lanes.
func (lv *live) inflight() (commands, bytes uint64) {
	for i := range lv.loads {
		c, b := lv.loads[i].Read()
		commands, bytes = commands+c, bytes+b
	}
	return commands, bytes
}
