package iscsi

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/mpsc"
	"github.com/csi-mpath/csi-mpath/pkg/poll"
)

// transmitter is the transmit half of the machine: it turns queued work into
// batches of iovecs. Producers push into the queues from any goroutine; all
// else belongs to the holder of the session's sender flag.
type transmitter struct {
	m *machine

	// Written by producers, drained by the holder.
	inbox mpsc.Queue[blk.Command, *blk.Command]
	jobq  mpsc.Queue[job, *job]
	ctlq  mpsc.Queue[control, *control]
	// shut is 1<<32 | the CmdSN that waits for the window, 0 when none does.
	// Written by the holder; the reader kicks when the window reaches it, the
	// holder looks once more after it gave up the flag: one of them sees.
	shut atomic.Uint64
	// unpark asks the holder to take up what waits for a gated unit (I1).
	// Written by Resume, cleared by the holder.
	unpark atomic.Bool

	// Holder's: what waits, oldest first.
	waiting fifo[blk.Command, *blk.Command]
	jobs    fifo[job, *job]
	ctls    fifo[control, *control]
	// What belongs to gated units.
	parked     fifo[blk.Command, *blk.Command]
	parkedJobs fifo[job, *job]
	cmdSN      uint32
	seq        uint64

	// Holder's: the batch. pend is what of iov is not sent yet. arena, iov and
	// refs lie in scratch, which is borrowed while there is something to send.
	scratch *scratch
	arena   []byte
	used    int
	iov     []unix.Iovec
	run     bool // the last iovec ends at arena[used]
	bytes   int
	pend    []unix.Iovec
	// refs are the payloads of the batch that go by reference, in order.
	refs []ref
	head int
	sent int
	now  int64 // clock of the batch, read at most once
	wake bool  // m.early needs the reader: it may be parked
}

// ref keeps a command's payload until the batch is sent up to end, bytes.
type ref struct {
	cmd *blk.Command
	end int
}

// fifo is a list linked through its elements.
type fifo[T any, P mpsc.Linked[T]] struct{ head, tail *T }

// push appends a chain.
func (f *fifo[T, P]) push(first *T) {
	if first == nil {
		return
	}
	if f.head == nil {
		f.head = first
	} else {
		*P(f.tail).NextPtr() = first
	}
	for f.tail = first; *P(f.tail).NextPtr() != nil; {
		f.tail = *P(f.tail).NextPtr()
	}
}

// pushFront puts all of g before f and leaves g empty.
func (f *fifo[T, P]) pushFront(g *fifo[T, P]) {
	if g.head == nil {
		return
	}
	g.push(f.head)
	*f, *g = *g, fifo[T, P]{}
}

func (f *fifo[T, P]) pop() *T {
	e := f.head
	f.head = *P(e).NextPtr()
	*P(e).NextPtr() = nil
	return e
}

func newTransmitter(m *machine) transmitter {
	return transmitter{m: m, cmdSN: initialCmdSN}
}

// gather returns what to send next: the rest of the last batch, or a new one.
// Empty means nothing can be sent now.
func (t *transmitter) gather() []unix.Iovec {
	if len(t.pend) > 0 {
		return t.pend
	}
	t.borrow()
	clear(t.iov) // a stale pointer to unmapped memory must not stay
	t.iov, t.refs = t.iov[:0], t.refs[:0]
	t.used, t.bytes, t.head, t.sent, t.now, t.run = 0, 0, 0, 0, 0, false
	if t.unpark.Swap(false) {
		t.waiting.pushFront(&t.parked)
		t.jobs.pushFront(&t.parkedJobs)
	}
	t.control()
	// Data asked for comes first, and leaves room for commands.
	t.dataOut(batchBytes / 2)
	t.commands()
	t.dataOut(batchBytes)
	if t.pend = t.iov; len(t.pend) == 0 {
		t.giveBack()
		return nil
	}
	return t.pend
}

// ready reports whether gather would find something. Any goroutine; a stale
// answer is corrected by whoever pushed or opened the window after.
func (t *transmitter) ready() bool {
	if !t.inbox.Empty() || !t.jobq.Empty() || !t.ctlq.Empty() || t.unpark.Load() {
		return true
	}
	v := t.shut.Load()
	return v != 0 && !pdu.SNLess(t.m.maxCmdSN.Load(), uint32(v))
}

// accept takes note of n bytes of the batch sent.
func (t *transmitter) accept(n int) {
	t.sent += n
	t.pend = poll.Advance(t.pend, n)
	for t.head < len(t.refs) && t.refs[t.head].end <= t.sent {
		t.drop(t.refs[t.head].cmd)
		t.refs[t.head] = ref{}
		t.head++
	}
}

// drop gives up one reference to a command's payload. If the response came
// first, this was what the command waited for: the reader completes it.
func (t *transmitter) drop(c *blk.Command) {
	if c.Tx.Add(^uint32(0)) == answeredBit {
		t.m.early.Push(c)
		t.wake = true
	}
}

// room reports whether one more PDU with up to n payload bytes, in so many
// pieces, fits the batch.
func (t *transmitter) room(n, pieces int) bool {
	need := pdu.HeaderLen + 2*pdu.DigestLen + 4
	if n <= copyLimit && pieces == 0 {
		need += n
	}
	return len(t.arena)-t.used >= need && len(t.iov)+pieces+3 <= cap(t.iov) && len(t.refs) < cap(t.refs) && t.bytes < batchBytes
}

// header is where the next PDU's header goes.
func (t *transmitter) header() []byte {
	return t.arena[t.used : t.used+pdu.HeaderLen+pdu.DigestLen]
}

// take adds the next n arena bytes to the batch.
func (t *transmitter) take(n int) {
	if n == 0 {
		return
	}
	if t.run {
		last := &t.iov[len(t.iov)-1]
		last.SetLen(int(last.Len) + n)
	} else {
		t.iov = append(t.iov, poll.Iovec(t.arena[t.used:t.used+n]))
		t.run = true
	}
	t.used += n
	t.bytes += n
}

// pdu completes the PDU whose header is at t.header(). A large payload goes by
// reference and c is kept until it is sent.
func (t *transmitter) pdu(payload []byte, c *blk.Command) {
	l := t.m.p.Layout
	t.take(pdu.HeaderLen + l.PutHeaderDigest(t.header()))
	n := len(payload)
	if n == 0 {
		return
	}
	var sum uint32
	if l.DataDigest {
		sum = pdu.CRC(0, payload)
	}
	if n <= copyLimit {
		copy(t.arena[t.used:], payload)
		t.take(n)
	} else {
		t.iov = append(t.iov, poll.Iovec(payload))
		t.refer(n, c)
	}
	t.take(l.PutTrailer(t.arena[t.used:t.used+8], n, sum))
}

// refer notes that the last n bytes of the batch are c's payload.
func (t *transmitter) refer(n int, c *blk.Command) {
	t.bytes += n
	t.run = false
	c.Tx.Add(1)
	t.refs = append(t.refs, ref{c, t.bytes})
}

// data is pdu with n bytes of k's payload from off.
func (t *transmitter) data(k *task, off, n int, c *blk.Command) {
	if k.out == nil && n > 0 {
		t.pieces(c, off, n)
		return
	}
	t.pdu(k.out[off:off+n], c)
}

// pieces is pdu for a payload in pieces, each by reference.
func (t *transmitter) pieces(c *blk.Command, off, n int) {
	l := t.m.p.Layout
	t.take(pdu.HeaderLen + l.PutHeaderDigest(t.header()))
	var sum uint32
	for end := off + n; off < end; {
		p := c.Piece(uint32(off))
		p = p[:min(len(p), end-off)]
		if l.DataDigest {
			sum = pdu.CRC(sum, p)
		}
		t.iov = append(t.iov, poll.Iovec(p))
		off += len(p)
	}
	t.refer(n, c)
	t.take(l.PutTrailer(t.arena[t.used:t.used+8], n, sum))
}

// rouse wakes a sleeping ticker. After the queue was drained: a tag in it was
// taken before, so either we see that the ticker sleeps, or it saw the tag.
func (t *transmitter) rouse() {
	if t.m.asleep.Load() {
		t.m.rouse()
	}
}

// commands encodes what waits, as far as window and batch allow. CmdSN is
// given here and nowhere earlier: a command dropped before leaves no hole.
func (t *transmitter) commands() {
	t.waiting.push(t.inbox.Drain())
	t.rouse()
	t.shut.Store(0)
	for t.waiting.head != nil && t.room(copyLimit, len(t.waiting.head.Vec)) {
		if pdu.SNLess(t.m.maxCmdSN.Load(), t.cmdSN) {
			t.shut.Store(1<<32 | uint64(t.cmdSN))
			return
		}
		c := t.waiting.pop()
		k := &t.m.tasks.table[c.Tag&0xffff]
		if k.ctl != nil && k.ctl.fate.Load() == fateAbandoned {
			t.m.finishControl(k, ErrClosed)
			continue
		}
		if u := k.unit(); u != nil && u.gate.Load() != 0 {
			t.parked.push(c)
			continue
		}
		t.command(k, c)
	}
}

// command encodes one SCSI command, with as much of its payload as may go
// unasked, and publishes the task to the reader.
func (t *transmitter) command(k *task, c *blk.Command) {
	h := pdu.SCSICommand{Final: true, Attr: pdu.AttrSimple, ITT: c.Tag, CmdSN: t.cmdSN, ExpStatSN: t.m.expStatSN.Load()}
	if k.ctl != nil {
		h.LUN, h.CDB, k.out, k.size = k.ctl.lun, k.ctl.cdb, k.ctl.out, len(k.ctl.out)
		h.Read, h.Write = c.Op == blk.Read, k.size > 0
	} else {
		h.LUN = uint64(k.lun.lun)
		k.lun.form.Load().encode(&h, k)
	}
	immediate, unsolicited := t.m.p.split(k.size)
	h.EDTL, h.DataLen, h.Final = k.expected(), immediate, unsolicited == 0
	c.Sent, c.Seq = true, t.seq
	if k.size > 0 {
		c.Moved = uint32(immediate + unsolicited)
	}
	k.cmdSN = t.cmdSN
	t.seq++
	t.cmdSN++
	h.Put(t.header())
	t.data(k, 0, immediate, c)
	if unsolicited > 0 {
		c.Tx.Add(1)
		if k.unsol == nil {
			k.unsol = new(job)
		}
		*k.unsol = job{task: k, cmd: c, ttt: pdu.NoTag, off: uint32(immediate), left: uint32(unsolicited)}
		t.jobs.push(k.unsol)
	}
	t.sample(k, c)
	k.live.Store(uint64(t.m.tick.Load())<<32 | uint64(c.Tag))
}

// split says how many bytes of a payload of n go with the command, and how
// many follow unsolicited.
func (p *Params) split(n int) (immediate, unsolicited int) {
	burst := min(n, int(p.FirstBurst))
	if p.ImmediateData {
		immediate = min(burst, int(p.MaxSend))
	}
	if !p.InitialR2T {
		unsolicited = burst - immediate
	}
	return immediate, unsolicited
}

// sample starts a latency sample unless one runs. One clock read per batch.
func (t *transmitter) sample(k *task, c *blk.Command) {
	if k.lun == nil || c.Op > blk.Write || k.lun.sample.Load() != 0 {
		return
	}
	if t.now == 0 {
		t.now = t.m.clock()
	}
	k.lun.sampleAt.Store(t.now)
	k.lun.sample.Store(c.Tag)
}

// dataOut encodes Data-Out until the batch holds limit bytes.
func (t *transmitter) dataOut(limit int) {
	t.jobs.push(t.jobq.Drain())
	for t.jobs.head != nil && t.bytes < limit {
		j := t.jobs.head
		if j.cmd.Tx.Load()&answeredBit != 0 { // answered already: nobody waits for this data
			t.jobs.pop()
			t.drop(j.cmd)
			continue
		}
		if l := j.task.lun; l != nil && l.gate.Load() != 0 {
			t.parkedJobs.push(t.jobs.pop())
			continue
		}
		n := min(j.left, t.m.p.MaxSend)
		if !t.room(int(n), len(j.cmd.Vec)) {
			return
		}
		t.dataPDU(j, n)
	}
}

// dataPDU encodes n bytes of j, and ends j when they were the last.
func (t *transmitter) dataPDU(j *job, n uint32) {
	k, c := j.task, j.cmd
	h := pdu.DataOut{Final: n == j.left, ITT: c.Tag, TTT: j.ttt, ExpStatSN: t.m.expStatSN.Load(),
		DataSN: j.seq, Offset: j.off, DataLen: int(n)}
	if k.ctl != nil {
		h.LUN = k.ctl.lun
	} else {
		h.LUN = uint64(k.lun.lun)
	}
	h.Put(t.header())
	t.data(k, int(j.off), int(n), c)
	j.off += n
	j.left -= n
	j.seq++
	if j.left > 0 {
		return
	}
	t.jobs.pop()
	// From here the slot, and after drop the task, may be in use again.
	if j.solicited {
		k.jobsDone.Add(1)
	}
	t.drop(c)
}
