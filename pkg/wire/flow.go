package wire

import (
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/mpsc"
	"github.com/csi-mpath/csi-mpath/pkg/poll"
)

// Codec is what a protocol knows: how PDUs are made and read. The first
// three methods are called by the holder of the sender flag, Waiting by anybody,
// the Parser's by the reader.
type Codec interface {
	// Urgent begins a batch: it encodes what goes before everything else.
	Urgent()
	// Command encodes k's command with as much of its payload as may go unasked;
	// false: none may go now.
	Command(k *Task, c *blk.Command) bool
	// Data encodes the next n bytes of a job.
	Data(j *Job, n int)
	// Waiting reports whether the codec itself has something to send now.
	Waiting() bool

	Parser
}

// Flow is the traffic of one connection, without socket, goroutine or clock: the
// receiving side is driven by the reader, the sending side by whoever holds the
// sender flag, timeouts by a ticker. They share the atomics here, the tag table
// and the queues.
type Flow struct {
	Tasks *Tasks
	Clock *Clock
	codec Codec

	// maxData is the most payload of one PDU of a job, bytes.
	maxData int

	// received counts receives. Written by the reader, read by the ticker.
	received atomic.Uint64
	_        [48]byte

	// early holds commands answered before their payload had left: pushed by
	// the sender when it has, completed by the reader.
	early mpsc.Queue[blk.Command, *blk.Command]
	// limbo are the tasks answered and still referenced, or in early. Reader's.
	limbo   []*Task
	touched []*Unit // want a BatchEnd. Reader's
	In      Intake

	// Written by producers, drained by the holder of the sender flag.
	inbox mpsc.Queue[blk.Command, *blk.Command]
	jobq  mpsc.Queue[Job, *Job]
	// unpark asks the holder to take up what waits for a gated unit (I1).
	// Written by Unpark, cleared by the holder.
	unpark atomic.Bool

	// Holder's: what waits, oldest first.
	waiting Fifo[blk.Command, *blk.Command]
	jobs    Fifo[Job, *Job]
	// What belongs to gated units.
	parked     Fifo[blk.Command, *blk.Command]
	parkedJobs Fifo[Job, *Job]
	seq        uint64
	sampled    int64 // clock of the batch, read at most once
	wake       bool  // early needs the reader: it may be parked
	Out        Batch
}

// Setup is what a Flow is made of.
type Setup struct {
	Tasks *Tasks
	Clock *Clock
	Codec Codec
	// MaxData is the most payload of one PDU that was asked for, Overhead the most
	// bytes of one PDU besides payload.
	MaxData, Overhead int
	// Sum continues the digest of payload, nil: it has none.
	Sum func(uint32, []byte) uint32
}

// NewFlow makes a flow.
func NewFlow(s Setup) *Flow {
	f := &Flow{Tasks: s.Tasks, Clock: s.Clock, codec: s.Codec, maxData: s.MaxData}
	f.limbo = make([]*Task, 0, s.Tasks.Len())
	f.Out.overhead, f.Out.sum = s.Overhead, s.Sum
	f.In.init(s.Codec, s.Sum)
	return f
}

// Received counts the receives so far.
func (f *Flow) Received() uint64 { return f.received.Load() }

// Gather returns what to send next: the rest of the last batch, or a new one.
// Empty means nothing can be sent now.
func (f *Flow) Gather() []unix.Iovec {
	if len(f.Out.pend) > 0 {
		return f.Out.pend
	}
	f.Out.begin()
	f.sampled = 0
	if f.unpark.Swap(false) {
		f.waiting.PushFront(&f.parked)
		f.jobs.PushFront(&f.parkedJobs)
	}
	f.codec.Urgent()
	// Data asked for comes first, and leaves room for commands.
	f.data(batchBytes / 2)
	f.commands()
	f.data(batchBytes)
	return f.Out.end()
}

// Ready reports whether Gather would find something. Any goroutine; a stale
// answer is corrected by whoever pushed or opened the window after.
func (f *Flow) Ready() bool {
	return !f.inbox.Empty() || !f.jobq.Empty() || f.unpark.Load() || f.codec.Waiting()
}

// Unpark takes up what waits for a gate that was opened.
func (f *Flow) Unpark() { f.unpark.Store(true) }

// Accept takes note of n bytes of the batch sent.
func (f *Flow) Accept(n int) {
	b := &f.Out
	b.sent += n
	b.pend = poll.Advance(b.pend, n)
	for b.head < len(b.refs) && b.refs[b.head].end <= b.sent {
		f.drop(b.refs[b.head].cmd)
		b.refs[b.head] = ref{}
		b.head++
	}
}

// drop gives up one reference to a command's payload. If the response came
// first, this was what the command waited for: the reader completes it.
func (f *Flow) drop(c *blk.Command) {
	if c.Tx.Add(^uint32(0)) == AnsweredBit {
		f.early.Push(c)
		f.wake = true
	}
}

// WantsReader reports, once, that a command waits for the reader to complete it.
// Sender.
func (f *Flow) WantsReader() bool {
	w := f.wake
	f.wake = false
	return w
}

// commands encodes what waits, as far as codec and batch allow. Numbers are given
// to commands here and nowhere earlier: one dropped before leaves no hole.
func (f *Flow) commands() {
	f.waiting.Push(f.inbox.Drain())
	f.Clock.Rouse()
	for f.waiting.Head != nil && f.Out.Room(CopyLimit, len(f.waiting.Head.Vec)) {
		c := f.waiting.Head
		k := f.Tasks.Of(c)
		if k.Ctl != nil && k.Ctl.Fate.Load() == FateAbandoned {
			f.waiting.Pop()
			f.FinishControl(k, nil)
			continue
		}
		if g := k.gate(); g != nil && g.Shut() {
			f.parked.Push(f.waiting.Pop())
			continue
		}
		if !f.codec.Command(k, c) {
			return
		}
		f.waiting.Pop()
		c.Sent, c.Seq = true, f.seq
		f.seq++
		f.sample(k, c)
		f.publish(k)
	}
}

// publish tells the reader that k is on the wire.
func (f *Flow) publish(k *Task) {
	k.live.Store(uint64(f.Clock.Now())<<32 | uint64(k.id))
}

// sample starts a latency sample unless one runs. One clock read per batch.
func (f *Flow) sample(k *Task, c *blk.Command) {
	u := k.Unit
	if u == nil || c.Op > blk.Write || u.sample.Load() != 0 {
		return
	}
	if f.sampled == 0 {
		f.sampled = f.Clock.now()
	}
	u.sampleAt.Store(f.sampled)
	u.sample.Store(c.Tag)
}

// Unsolicited sends n bytes of k's payload from off after its command. Sender.
func (f *Flow) Unsolicited(k *Task, tag uint32, off, n int) {
	k.Cmd.Tx.Add(1)
	if k.unsol == nil {
		k.unsol = new(Job)
	}
	*k.unsol = Job{Task: k, Cmd: k.Cmd, Tag: tag, Off: uint32(off), Left: uint32(n)}
	f.jobs.Push(k.unsol)
}

// Ask answers a transfer the peer asks for: n bytes of k's payload from off,
// under the peer's tag. The reader never sends: the job waits for the next
// holder of the sender flag.
func (f *Flow) Ask(k *Task, tag, off, n uint32) {
	if k.jobs == nil {
		k.jobs = new([MaxAsked]Job)
	}
	j := &k.jobs[k.Asked%MaxAsked]
	*j = Job{Task: k, Cmd: k.Cmd, Tag: tag, Off: off, Left: n, solicited: true}
	k.Asked++
	k.Cmd.Moved += n
	k.Cmd.Tx.Add(1)
	f.jobq.Push(j)
}

// Unsent is how many transfers asked for are not wholly encoded yet.
func (k *Task) Unsent() uint32 { return k.Asked - k.jobsDone.Load() }

// data encodes payload until the batch holds limit bytes.
func (f *Flow) data(limit int) {
	f.jobs.Push(f.jobq.Drain())
	for f.jobs.Head != nil && f.Out.bytes < limit {
		j := f.jobs.Head
		if j.Cmd.Tx.Load()&AnsweredBit != 0 { // answered already: nobody waits for this data
			f.jobs.Pop()
			f.drop(j.Cmd)
			continue
		}
		if u := j.Task.Unit; u != nil && u.Gate.Shut() {
			f.parkedJobs.Push(f.jobs.Pop())
			continue
		}
		n := min(int(j.Left), f.maxData)
		if !f.Out.Room(n, len(j.Cmd.Vec)) {
			return
		}
		f.piece(j, n)
	}
}

// piece encodes n bytes of j, and ends j when they were the last.
func (f *Flow) piece(j *Job, n int) {
	k, c := j.Task, j.Cmd
	f.codec.Data(j, n)
	j.Off += uint32(n)
	j.Left -= uint32(n)
	j.Seq++
	if j.Left > 0 {
		return
	}
	f.jobs.Pop()
	// From here the slot, and after drop the task, may be in use again.
	if j.solicited {
		k.jobsDone.Add(1)
	}
	f.drop(c)
}

// Answer ends a task's time on the wire with a verdict: the command completes
// now, or when the sender has let go of its payload. Reader only.
func (f *Flow) Answer(k *Task, v blk.Verdict) {
	c := k.Cmd
	c.Verdict = v
	k.live.Store(0)
	if v.Evidence != 0 && k.Unit != nil {
		// At once, not when the sender lets go: what it gathers next comes after (I1).
		k.Unit.Evidence(v.Evidence)
	}
	if k.Size > 0 && c.Tx.Or(AnsweredBit) != 0 {
		f.limbo = append(f.limbo, k)
		return
	}
	f.complete(k)
}

// Evidence tells the sink; a doubt about the identity, or about the reservation
// of a unit that has one, stops the senders first.
func (u *Unit) Evidence(e blk.Evidence) {
	if u.Gate.stops(e) {
		u.Gate.Doubt()
	}
	u.Sink.Evidence(e)
}

// complete hands a command back. Reader only, or the retirer.
func (f *Flow) complete(k *Task) {
	c, u := k.Cmd, k.Unit
	if k.Ctl != nil {
		f.FinishControl(k, k.Ctl.Err)
		return
	}
	if u.sample.Load() == c.Tag {
		u.learn(f.Clock.now())
	}
	f.Tasks.Put(k)
	u.inflight.Add(-1)
	if u.touched == 0 {
		f.touched = append(f.touched, u)
	}
	u.touched |= c.LaneBit()
	u.Sink.Complete(c)
}

// CompleteEarly completes what the sender has let go of. Reader only.
func (f *Flow) CompleteEarly() {
	for c := f.early.Drain(); c != nil; {
		next := c.Next
		c.Next = nil
		k := f.Tasks.Of(c)
		i := slices.Index(f.limbo, k)
		f.limbo = slices.Delete(f.limbo, i, i+1)
		f.complete(k)
		c = next
	}
}

// EndBatch tells the units that completed something. Reader only.
func (f *Flow) EndBatch() {
	for i, u := range f.touched {
		lanes := u.touched
		u.touched, f.touched[i] = 0, nil
		u.Sink.BatchEnd(lanes)
	}
	f.touched = f.touched[:0]
}
