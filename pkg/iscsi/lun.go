package iscsi

import (
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// LUN is one logical unit seen through one session: a queue of blk.Commands
// whose outcomes go to its sink.
type LUN struct {
	s    *Session
	lun  scsi.LUN
	sink blk.Sink
	cap  int32

	// form says how commands are encoded. Written by SetProfile, read by the
	// sender once per command; a stale one is as good as the new one a moment ago.
	form atomic.Pointer[form]

	// inflight counts commands from Submit until they are handed back. Written
	// by submitters (up) and the reader (down); it is the LUN's share of the
	// window, and what the retirer waits for.
	inflight atomic.Int32
	// closed is set once, by Close or by the end of the session: Submit refuses.
	closed atomic.Bool
	_      [32]byte

	// Latency sampling: one command at a time. sample is its ITT, written by the
	// sender when 0, cleared by the reader; sampleAt is written by whoever may
	// write sample. ewma, sampled and sampledFor are written by the reader;
	// nanoseconds. Samples reads them all: one from another moment than the
	// others makes one look at the path a little wrong.
	sample     atomic.Uint32
	sampleAt   atomic.Int64
	ewma       atomic.Int64
	sampled    atomic.Uint64
	sampledFor atomic.Int64

	// gate is the number of the latest evidence against the identity: nothing of
	// the unit is sent until Resume (I1); 0 is open. Set by the reader, cleared by
	// Resume, read by the sender.
	gate atomic.Uint32

	// Reader's.
	doubts  uint32 // evidence so far
	touched uint64 // lanes that something was completed for in this batch
}

// SetProfile says how the unit is addressed and what it can do. Until it was
// called Submit refuses everything.
func (l *LUN) SetProfile(p *scsi.Profile) { l.form.Store(newForm(p)) }

// Submit takes a command; lane is any small number that tells submitters
// apart. False means no tag, no share of the window, or no session now:
// nothing was queued. It never blocks; Kick sends.
func (l *LUN) Submit(c *blk.Command, lane int) bool {
	// inflight goes up before closed is read: the retirer sets closed, then
	// waits until everything counted was found or taken back.
	if l.inflight.Add(1) > l.cap || l.closed.Load() {
		l.inflight.Add(-1)
		return false
	}
	f := l.form.Load()
	var k *task
	if f != nil {
		k = l.s.m.tasks.get(lane)
	}
	if k == nil {
		l.inflight.Add(-1)
		return false
	}
	k.cmd, k.lun = c, l
	c.Tag, c.Moved, c.Sent = k.itt(), 0, false
	c.Tx.Store(0)
	l.s.m.tx.inbox.Push(c)
	return true
}

// Kick sends what was submitted, on the caller's goroutine if nobody else is
// sending: of every lane, they share the connection. It never blocks.
func (l *LUN) Kick(int) { l.s.kick() }

// Gate is what Resume wants: ask before the identification begins.
func (l *LUN) Gate() uint32 { return l.gate.Load() }

// Resume lets the unit send again after an identification proved that it is
// still the same (I1), unless new evidence came since Gate returned upTo.
func (l *LUN) Resume(upTo uint32) {
	l.gate.CompareAndSwap(upTo, 0)
	l.s.m.tx.unpark.Store(true)
	l.s.kick()
}

// evidence tells the sink; a doubt about the identity stops the sender first.
// Reader only.
func (l *LUN) evidence(e blk.Evidence) {
	if e&blk.IdentityChanged != 0 {
		l.doubts = max(l.doubts+1, 1)
		l.gate.Store(l.doubts)
	}
	l.sink.Evidence(e)
}

// Latency is a moving average of sampled command times; 0 before the first.
func (l *LUN) Latency() time.Duration { return time.Duration(l.ewma.Load()) }

// Samples tells how many commands were sampled, the time they took together,
// and since when the one in flight is out, 0 for none.
func (l *LUN) Samples() (n uint64, took, waiting time.Duration) {
	if l.sample.Load() != 0 {
		waiting = time.Duration(max(l.s.m.clock()-l.sampleAt.Load(), 1))
	}
	return l.sampled.Load(), time.Duration(l.sampledFor.Load()), waiting
}

// Inflight counts the commands submitted and not handed back.
func (l *LUN) Inflight() int { return int(l.inflight.Load()) }

// Addr is the logical unit number.
func (l *LUN) Addr() scsi.LUN { return l.lun }

// learn folds one sample into the average.
func (l *LUN) learn(now int64) {
	d := max(now-l.sampleAt.Load(), 1)
	l.sampled.Add(1)
	l.sampledFor.Add(d)
	if old := l.ewma.Load(); old != 0 {
		d = old + (d-old)/latencyWeight
	}
	l.ewma.Store(d)
	l.sample.Store(0)
}
