package datapath

import (
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/merge"
)

// phase says where a slot's request is.
type phase uint8

const (
	idle    phase = iota // no request
	queued               // in the lane's queue, to be sent
	flying               // parts of it are on a path
	landed               // in the inbox: its wave ended
	waiting              // in the doubt registry (I3)
	delayed              // waits for a time
	held                 // leads a unit that waits for more of its stream
	joined               // member of a unit that another slot leads
)

// slot is the datapath's side of one request of a lane.
//
// It belongs to the lane's runner, except while flying: then parts and result
// belong to the path's reader, and the one that takes parts to zero passes the
// slot on (through the inbox, or by answering). inDoubt is written under the
// doubt registry's lock; fence only while the registry registers a loss.
type slot struct {
	lane  *Lane
	index uint32
	phase phase

	req *blk.Request
	lv  *live // the path it flies on

	several bool          // the wave has more than one part
	parts   atomic.Int32  // then: parts in flight, plus the submitter's guard
	result  atomic.Uint32 // worst verdict of the wave, packed
	sent    uint32        // bytes of the request given to the path so far
	cover   uint64        // of a flush: what it makes durable, see cacheMark
	synced  bool          // the flush that makes FUA true was sent after the data

	cmds []blk.Command // one, or more once a large request was here

	// The unit (unit.go). Of a leader: last, total bytes, payload in pieces. Of
	// a member: more. While flying they belong to the path's reader.
	more, last *slot
	total      uint32
	vec        [][]byte
	strm       int8  // the stream it belongs to (merge)
	again      bool  // was sent before: never held
	heldAt     int64 // when it was first held, ns; 0 never

	inDoubt atomic.Int32
	fence   *fence
	status  blk.Status // of a withheld answer

	// Retry state.
	tries    int
	avoid    *live     // tried and failed with a hardware error
	hardware bool      // that one try was used up
	since    time.Time // when the device first refused it, of the failures in a row
	due      time.Time // when to try again
	delay    time.Duration
}

// origin names the request's place in the ledger.
func (s *slot) origin() uint64 { return uint64(s.lane.id)<<32 | uint64(s.index) }

func (s *slot) entry() *entry { return &s.lane.entries[s.index] }

// begin takes a new request in.
func (s *slot) begin(r *blk.Request) {
	s.req = r
	s.phase = queued
	s.lv, s.avoid, s.fence = nil, nil, nil
	s.sent, s.synced = 0, false
	s.tries, s.hardware, s.delay = 0, false, 0
	s.since = time.Time{}
	s.strm, s.again, s.heldAt = merge.None, false, 0
}

// severity orders the classes when the parts of one wave ended differently: a
// definite error outranks everything, then what keeps the request off the path.
var severity = [...]uint32{
	blk.Good: 0, blk.Aborted: 1, blk.Retry: 2, blk.Busy: 3, blk.RetryLater: 4,
	blk.WrongState: 5, blk.LUNGone: 6, blk.OtherPathOnce: 7, blk.PathLost: 8, blk.TargetError: 9,
}

// classes is severity the other way round.
var classes = func() (c [len(severity)]blk.PathStatus) {
	for class, s := range severity {
		c[s] = blk.PathStatus(class) //nolint:gosec // a dozen of them
	}
	return c
}()

// pack makes a number of a verdict, the larger the more it counts; of equal
// classes the one that wants the longest wait.
func pack(v blk.Verdict) uint32 {
	return severity[v.Class]<<24 | uint32(v.After)<<8 | uint32(v.Status)
}

// unpack is pack the other way round; evidence was passed on already.
func unpack(w uint32) blk.Verdict {
	return blk.Verdict{Class: classes[w>>24], After: uint16(w >> 8), Status: blk.Status(w)} //nolint:gosec // its bytes
}

// clearResult begins a wave. Nearly always there is nothing to clear, and a
// store would cost as much as all loads of the request together.
func (s *slot) clearResult() {
	if s.result.Load() != 0 {
		s.result.Store(0)
	}
}

// note merges one part's verdict into the wave's result.
func (s *slot) note(v blk.Verdict) {
	w := pack(v)
	for old := s.result.Load(); w > old; old = s.result.Load() {
		if s.result.CompareAndSwap(old, w) {
			return
		}
	}
}

// wantsSync reports whether all data is written and a flush must follow to
// honour FUA: the device has a volatile cache and no FUA for this operation.
func (s *slot) wantsSync() bool {
	if s.req.Flags&blk.FUA == 0 || s.synced || s.sent != s.req.Len {
		return false
	}
	lim := &s.lv.facts.Limits
	return lim.WriteCache && !(lim.FUA && s.req.Op == blk.Write)
}

// partSize is how many bytes one command of the request may carry on lv.
func (s *slot) partSize(lv *live) (size uint64, op blk.Op) {
	lim := &lv.facts.Limits
	switch op = s.req.Op; op {
	case blk.Trim:
		return min(orDefault(lim.MaxUnmap, maxTrim), maxTrim), op
	case blk.WriteZeroes:
		if lim.MaxZero != 0 {
			return min(lim.MaxZero, maxTrim), op
		}
		// The device has no such command: zeroes are written.
		return min(orDefault(uint64(lim.MaxTransfer), maxTransfer), maxTransfer), blk.Write
	}
	return orDefault(uint64(lim.MaxTransfer), maxTransfer), op
}

func orDefault(v, d uint64) uint64 {
	if v == 0 {
		return d
	}
	return v
}

// zeroes is what a write-zeroes is written from where the device has no such
// command. Never written to.
var zeroes [maxTransfer]byte

// fill makes c the part of the request that starts at byte at.
func (s *slot) fill(c *blk.Command, at uint32, n uint32, op blk.Op) {
	r := s.req
	c.Op, c.Flags = op, r.Flags
	c.Off, c.Len = r.Off+uint64(at), n
	c.Lane, c.Slot = s.lane.id, s.index
	c.Sent, c.Next = false, nil
	c.Verdict, c.Vec = blk.Verdict{}, nil
	switch {
	case op == r.Op && r.Buf != nil:
		c.Buf = r.Buf[at : at+n]
	case op == blk.Write:
		c.Buf = zeroes[:n]
	default:
		c.Buf = nil
	}
}
