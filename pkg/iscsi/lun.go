package iscsi

import (
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/wire"
)

// LUN is one logical unit seen through one session: a queue of blk.Commands
// whose outcomes go to its sink.
type LUN struct {
	s    *Session
	lun  scsi.LUN
	unit wire.Unit
	gate wire.Gate

	// form says how commands are encoded. Written by SetProfile, read by the
	// sender once per command; a stale one is as good as the new one a moment ago.
	form atomic.Pointer[form]
}

func newLUN(s *Session, lun scsi.LUN, depth int, sink blk.Sink) *LUN {
	l := &LUN{s: s, lun: lun}
	l.unit.Init(s.m.Flow, uint64(lun), depth, &l.gate, sink)
	return l
}

// SetProfile says how the unit is addressed and what it can do. Until it was
// called Submit refuses everything.
func (l *LUN) SetProfile(p *scsi.Profile) { l.form.Store(newForm(p)) }

// Submit takes a command; lane is any small number that tells submitters
// apart. False means no tag, no share of the window, or no session now:
// nothing was queued. It never blocks; Kick sends.
func (l *LUN) Submit(c *blk.Command, lane int) bool {
	if l.form.Load() == nil {
		return false
	}
	k := l.unit.Take(lane)
	if k == nil {
		return false
	}
	l.s.m.renew(k, l, nil)
	l.unit.Push(k, c)
	return true
}

// Kick sends what was submitted, on the caller's goroutine if nobody else is
// sending: of every lane, they share the connection. It never blocks.
func (l *LUN) Kick(int) { l.s.link.Kick() }

// WatchReservation says that the unit is held by a reservation: what may have
// ended it stops the unit like a doubt about its identity. Before SetProfile.
func (l *LUN) WatchReservation() { l.gate.WatchReservation() }

// Gate is what Resume wants: ask before the identification begins. 0: open.
func (l *LUN) Gate() uint32 { return l.gate.Ticket() }

// Resume lets the unit send again after an identification proved that it is
// still the same (I1), unless new evidence came since Gate returned upTo.
func (l *LUN) Resume(upTo uint32) {
	l.gate.Open(upTo)
	l.s.m.Unpark()
	l.s.link.Kick()
}

// Latency is a moving average of sampled command times; 0 before the first.
func (l *LUN) Latency() time.Duration { return l.unit.Latency() }

// Samples tells how many commands were sampled, the time they took together,
// and since when the one in flight is out, 0 for none.
func (l *LUN) Samples() (n uint64, took, waiting time.Duration) { return l.unit.Samples() }

// Inflight counts the commands submitted and not handed back.
func (l *LUN) Inflight() int { return l.unit.Inflight() }

// Addr is the logical unit number.
func (l *LUN) Addr() scsi.LUN { return l.lun }

// Close gives the unit up: it waits until its commands are handed back, and no
// call to its sink comes after it returns. Not to be called by a sink.
func (l *LUN) Close() {
	if l.unit.Drain(l.s.done) {
		l.s.remove(l)
		l.s.link.Barrier(l.s.done)
	}
}
