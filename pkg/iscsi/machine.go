package iscsi

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/mpsc"
)

// machine is the full feature phase of one session, without socket, goroutine
// or clock: the receiver is driven by the reader, the transmitter by whoever
// holds the sender flag, the watchdog by the ticker. They share the atomics
// here, the tag table and the queues.
type machine struct {
	p     Params
	tasks *tasks
	// clock is a monotonic clock in nanoseconds, read for latency samples only.
	clock func() int64

	// maxCmdSN ends the command window; expStatSN is acknowledged in every PDU
	// we send. Written by the reader, read by the sender: a stale window delays
	// a command until the reader's kick, a stale StatSN acknowledges less.
	maxCmdSN, expStatSN atomic.Uint32
	_                   [56]byte
	// tick is the coarse clock, in tickIntervals. Written by the ticker, and by
	// whoever rouses it.
	tick atomic.Uint32
	// asleep: the ticker waits for the next keep-alive, nothing is outstanding.
	// Set by the ticker, which looks for work once more after it; read by the
	// sender after the tag was taken: one of them sees the other.
	asleep atomic.Bool
	// received counts receives. Written by the reader, read by the ticker.
	received atomic.Uint64
	_        [48]byte

	// early holds commands answered before their payload had left: pushed by
	// the sender when it has, completed by the reader.
	early mpsc.Queue[blk.Command, *blk.Command]
	// limbo are the tasks answered and still referenced, or in early. Reader's.
	limbo []*task

	wakeTicker chan struct{} // capacity 1, see rouse

	// reviewWanted asks the reader for review. Written by the ticker and the reader.
	reviewWanted atomic.Bool
	// leaving is the tick by which the session ends on the target's wish, 0 if
	// it does not. Written once by the reader, read by the ticker.
	leaving atomic.Uint32

	// luns is the set of logical units, replaced as a whole by the session
	// under its lock. A stale set misses events of a unit just added.
	luns atomic.Pointer[[]*LUN]

	tx transmitter
	rx receiver
}

func newMachine(p Params, w pdu.Window, expStatSN uint32, depth, homes int, clock func() int64) *machine {
	m := &machine{p: p, tasks: newTasks(depth, homes), clock: clock, wakeTicker: make(chan struct{}, 1)}
	m.maxCmdSN.Store(w.MaxCmdSN)
	m.expStatSN.Store(expStatSN)
	m.luns.Store(new([]*LUN))
	m.limbo = make([]*task, 0, len(m.tasks.table))
	m.tx = newTransmitter(m)
	m.rx.init(m)
	return m
}

// window takes the sequence numbers of a PDU. status says that StatSN counts
// a status; a StatSN behind ours is not taken back.
func (m *machine) window(w pdu.Window, status bool) {
	if status && !pdu.SNLess(w.StatSN, m.expStatSN.Load()) {
		m.expStatSN.Store(w.StatSN + 1)
	}
	// RFC 7143 4.2.2.1: a MaxCmdSN below ExpCmdSN-1 is ignored.
	if !pdu.SNLess(w.MaxCmdSN, w.ExpCmdSN-1) && pdu.SNLess(m.maxCmdSN.Load(), w.MaxCmdSN) {
		m.maxCmdSN.Store(w.MaxCmdSN)
	}
}

// answer ends a task's time on the wire with a verdict: the command completes
// now, or when the sender has let go of its payload. Reader only.
func (m *machine) answer(k *task, v blk.Verdict) {
	c := k.cmd
	c.Verdict = v
	k.live.Store(0)
	if v.Evidence != 0 && k.lun != nil {
		// At once, not when the sender lets go: what it gathers next comes after (I1).
		k.lun.evidence(v.Evidence)
	}
	if k.size > 0 && c.Tx.Or(answeredBit) != 0 {
		m.limbo = append(m.limbo, k)
		return
	}
	m.complete(k)
}

// complete hands a command back. Reader only, or the retirer.
func (m *machine) complete(k *task) {
	c, l := k.cmd, k.lun
	if k.ctl != nil {
		m.finishControl(k, k.ctl.err)
		return
	}
	if l.sample.Load() == c.Tag {
		l.learn(m.clock())
	}
	m.tasks.put(k)
	l.inflight.Add(-1)
	m.rx.touch(l, c.LaneBit())
	l.sink.Complete(c)
}

// completeEarly completes what the sender has let go of. Reader only.
func (m *machine) completeEarly() {
	for c := m.early.Drain(); c != nil; {
		next := c.Next
		c.Next = nil
		k := &m.tasks.table[c.Tag&0xffff]
		i := slices.Index(m.limbo, k)
		m.limbo = slices.Delete(m.limbo, i, i+1)
		m.complete(k)
		c = next
	}
}

// evidence tells every unit with the given address, or all.
func (m *machine) evidence(lun uint64, all bool, e blk.Evidence) {
	for _, l := range *m.luns.Load() {
		if all || uint64(l.lun) == lun {
			l.evidence(e)
		}
	}
}

// leave closes the units to new commands: the target wants the session to end
// within so many seconds (RFC 7143 11.9.1). The ticker logs out when they are idle.
func (m *machine) leave(seconds uint16) {
	for _, l := range *m.luns.Load() {
		l.closed.Store(true)
	}
	wait := min(uint32(seconds)*uint32(time.Second/tickInterval), uint32(logoutTimeout/tickInterval))
	if m.asleep.Load() {
		m.setTick() // a sleeping ticker's clock stands
	}
	m.leaving.Store(max(m.tick.Load()+wait, 1))
	m.rouse()
}
