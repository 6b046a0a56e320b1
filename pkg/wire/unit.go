package wire

import (
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// Unit is one logical unit or namespace seen through one Flow: a queue of
// blk.Commands whose outcomes go to its sink.
type Unit struct {
	// Addr is the address the protocol knows it by.
	Addr uint64
	// Gate is shared by all that are the same unit.
	Gate *Gate
	Sink blk.Sink

	flow *Flow
	cap  int32

	// inflight counts commands from Submit until they are handed back. Written
	// by submitters (up) and the reader (down); it is the unit's share of the
	// window, and what the retirer waits for.
	inflight atomic.Int32
	// closed is set once, by Close or by the end of the flow: Take refuses.
	closed atomic.Bool
	_      [32]byte

	// Latency sampling: one command at a time. sample is its ID, written by the
	// sender when 0, cleared by the reader; sampleAt is written by whoever may
	// write sample. ewma, sampled and sampledFor are written by the reader;
	// nanoseconds. Samples reads them all: one from another moment than the
	// others makes one look at the path a little wrong.
	sample     atomic.Uint32
	sampleAt   atomic.Int64
	ewma       atomic.Int64
	sampled    atomic.Uint64
	sampledFor atomic.Int64

	touched uint64 // lanes that something was completed for in this batch; reader's
}

// Init makes u a unit of f, with at most depth commands in flight.
func (u *Unit) Init(f *Flow, addr uint64, depth int, gate *Gate, sink blk.Sink) {
	u.flow, u.Addr, u.cap, u.Gate, u.Sink = f, addr, int32(depth), gate, sink
}

// Take takes a tag and a share of the window for a command; lane is any small
// number that tells submitters apart. nil means none now: nothing was taken.
func (u *Unit) Take(lane int) *Task {
	// inflight goes up before closed is read: the retirer sets closed, then
	// waits until everything counted was found or taken back.
	if u.inflight.Add(1) > u.cap || u.closed.Load() {
		u.inflight.Add(-1)
		return nil
	}
	k := u.flow.Tasks.get(lane)
	if k == nil {
		u.inflight.Add(-1)
	}
	return k
}

// Push gives the sender a command with a task taken for it. A Kick follows.
func (u *Unit) Push(k *Task, c *blk.Command) {
	k.Cmd, k.Unit = c, u
	c.Tag, c.Moved, c.Sent = k.id, 0, false
	c.Tx.Store(0)
	u.flow.inbox.Push(c)
}

// Close refuses all further commands.
func (u *Unit) Close() { u.closed.Store(true) }

// Latency is a moving average of sampled command times; 0 before the first.
func (u *Unit) Latency() time.Duration { return time.Duration(u.ewma.Load()) }

// Samples tells how many commands were sampled, the time they took together,
// and since when the one in flight is out, 0 for none.
func (u *Unit) Samples() (n uint64, took, waiting time.Duration) {
	if u.sample.Load() != 0 {
		waiting = time.Duration(max(u.flow.Clock.now()-u.sampleAt.Load(), 1))
	}
	return u.sampled.Load(), time.Duration(u.sampledFor.Load()), waiting
}

// Inflight counts the commands submitted and not handed back.
func (u *Unit) Inflight() int { return int(u.inflight.Load()) }

// learn folds one sample into the average.
func (u *Unit) learn(now int64) {
	d := max(now-u.sampleAt.Load(), 1)
	u.sampled.Add(1)
	u.sampledFor.Add(d)
	if old := u.ewma.Load(); old != 0 {
		d = old + (d-old)/latencyWeight
	}
	u.ewma.Store(d)
	u.sample.Store(0)
}

// Drain refuses all further commands and waits until the others are handed
// back. False: done was closed.
func (u *Unit) Drain(done <-chan struct{}) bool {
	u.Close()
	t := time.NewTicker(time.Millisecond)
	defer t.Stop()
	for u.inflight.Load() != 0 {
		select {
		case <-done:
			return false
		case <-t.C:
		}
	}
	return true
}
