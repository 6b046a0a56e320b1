package target

import (
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// task is one SCSI command inside the target.
type task struct {
	serve.Task
	sess *session
	conn *conn // nil when the connection is gone (late execution)
	unit *unit // nil: no such LUN
	lun  uint64
	itt  uint32

	cmd         scsi.Command
	attr        uint8 // task attribute
	edtl        uint32
	read, write bool
	immediate   bool // took no CmdSN
	listed      bool // in sess.tasks

	buf  []byte // owned, for write data; nil if all came in one PDU
	data []byte // the write data, buf or the receive buffer
	need uint32 // bytes of write data it waits for, <= edtl
	got  uint32

	unsolicited bool   // Data-Out without R2T are still to come
	ttt, burst  uint32 // the R2T whose data comes now, and where that ends
	dataSN      uint32
	r2tSN       uint32
	asked       uint32 // end of the last R2T
	next        [maxOutstandingR2T - 1]solicited
	nexts       int // of next, those whose data comes after ttt's

	// Of execution. A job reads them, and writes buf, result and the store.
	bad     scsi.Sense // what the job says
	off, n  uint64     // the range, bytes
	durable bool       // the store is flushed before the answer
	reads   bool       // buf is the data to answer with
	met     bool       // the answer is CONDITION MET
	result  []byte     // parameter data to answer with
}

// solicited is one R2T: its tag, and where its data ends.
type solicited struct{ ttt, end uint32 }

// immediateFits checks the immediate data of a command against what was negotiated.
func (c *conn) immediateFits(p *pdu.SCSICommand, n int) bool {
	switch {
	case n > 0 && !p.Write:
		c.Fail("data with a command that writes nothing")
	case n > 0 && c.params.noImmediate:
		c.Fail("immediate data, but ImmediateData=No")
	case n > int(min(p.EDTL, c.params.firstBurst)):
		c.Fail("immediate data beyond EDTL or FirstBurstLength")
	case !p.Final && (c.params.initialR2T || !p.Write):
		c.Fail("unsolicited data announced, but not allowed")
	}
	return !c.Closing()
}

// command begins a SCSI command. t is not nil when its data was received in place.
func (c *conn) command(h, data []byte, t *task, landed bool) {
	var p pdu.SCSICommand
	_ = p.Decode(h)
	if t == nil {
		t = c.m.newTask()
	}
	if c.refused(&p, len(data)) {
		c.m.free(t)
		return
	}
	c.m.stats.Commands++
	t.sess, t.conn, t.lun, t.itt, t.edtl = c.sess, c, p.LUN, p.ITT, p.EDTL
	t.read, t.write, t.immediate, t.attr = p.Read, p.Write, p.Immediate, p.Attr
	if n, ok := scsi.LUN(p.LUN).Number(); ok {
		t.unit = c.m.units[n]
	}
	cmd, bad, ok := scsi.DecodeCDB(p.CDB[:])
	if t.cmd = cmd; !ok {
		c.m.check(t, bad)
		return
	}
	want := c.m.wants(t)
	if p.Write {
		t.need = min(want, p.EDTL)
	}
	switch {
	case want > serve.MaxTransfer || landed && t.buf == nil && p.EDTL > serve.MaxTransfer:
		c.m.check(t, scsi.SenseInvalidCDB)
	case landed && t.buf == nil:
		c.m.answer(t, scsi.StatusTaskSetFull, nil)
	default:
		t.got = uint32(len(data))
		t.data, t.unsolicited = data, !p.Final
		c.collect(t)
	}
}

// refused handles commands that never become tasks.
func (c *conn) refused(p *pdu.SCSICommand, n int) bool {
	s := c.sess
	switch {
	case s.discovery:
		c.reject(pdu.RejectProtocol, p.Immediate)
	case !c.immediateFits(p, n):
	case s.tasks[p.ITT] != nil:
		c.reject(pdu.RejectTaskInProgress, p.Immediate)
	case p.Immediate && len(s.tasks) >= c.m.cfg.Depth+maxImmediate:
		c.reject(pdu.RejectTooManyImmed, true)
	default:
		return false
	}
	return true
}

// wants is the write data the command takes, bytes.
func (m *Machine) wants(t *task) uint32 {
	bs := uint64(512)
	if t.unit != nil {
		bs = t.blockSize()
	}
	all := uint32(min(uint64(t.cmd.Blocks)*bs, 1<<30))
	switch t.cmd.Op {
	case scsi.OpWrite10, scsi.OpWrite16, scsi.OpWrite12, scsi.OpWrite6, scsi.OpOrWrite16,
		scsi.OpWriteVerify10, scsi.OpWriteVerify12, scsi.OpWriteVerify16:
		return all
	case scsi.OpCompareAndWrite:
		return 2 * all
	case scsi.OpVerify10, scsi.OpVerify12, scsi.OpVerify16:
		switch t.cmd.ByteCheck {
		case 1:
			return all
		case 3:
			return uint32(bs)
		}
	case scsi.OpWriteSame10, scsi.OpWriteSame16:
		if t.cmd.Flags&scsi.NDOB == 0 {
			return uint32(bs)
		}
	case scsi.OpUnmap, scsi.OpPersistentReserveOut, scsi.OpModeSelect6, scsi.OpModeSelect10:
		return min(t.cmd.Alloc, maxParam)
	}
	return 0
}

// collect gets the rest of a command's write data, or goes on with it.
func (c *conn) collect(t *task) {
	if !t.unsolicited && t.got >= t.need {
		c.m.ready(t)
		return
	}
	if t.buf == nil {
		if t.edtl > serve.MaxTransfer {
			c.m.check(t, scsi.SenseInvalidCDB)
			return
		}
		if !c.m.buffer(t, int(t.edtl)) {
			c.m.answer(t, scsi.StatusTaskSetFull, nil)
			return
		}
		copy(t.buf, t.data)
	}
	t.data = t.buf
	c.list(t)
	if !t.unsolicited {
		t.asked = t.got
		c.ask(t)
	}
}

func (c *conn) list(t *task) {
	if !t.listed {
		t.listed = true
		t.sess.tasks[t.itt] = t
	}
}

// ask sends R2Ts (RFC 7143 11.8), as many as may be outstanding. Their data comes
// in their order: DataSequenceInOrder is Yes.
func (c *conn) ask(t *task) {
	if t.burst <= t.got && t.nexts > 0 { // the next one's turn
		t.ttt, t.burst = t.next[0].ttt, t.next[0].end
		t.nexts--
		copy(t.next[:], t.next[1:])
	}
	t.dataSN = 0
	for t.asked < t.need && (t.burst <= t.got || t.nexts+1 < c.params.maxR2T) {
		c.r2t(t)
	}
}

func (c *conn) r2t(t *task) {
	n := min(t.need-t.asked, c.params.maxBurst)
	c.m.ttt = (c.m.ttt + 1) & 0x7fffffff // never NoTag
	w := c.window(false)
	w.StatSN = c.statSN
	p := pdu.R2T{LUN: t.lun, ITT: t.itt, TTT: c.m.ttt, Window: w, R2TSN: t.r2tSN, Offset: t.asked, Length: n}
	t.r2tSN++
	t.asked += n
	if t.burst <= t.got {
		t.ttt, t.burst = p.TTT, t.asked
	} else {
		t.next[t.nexts] = solicited{p.TTT, t.asked}
		t.nexts++
	}
	p.Put(c.head())
	c.seal()
}

// fits checks a Data-Out of n bytes against what its task waits for (RFC 7143 11.7).
func (c *conn) fits(t *task, h []byte, n int) bool {
	var p pdu.DataOut
	_ = p.Decode(h)
	limit := t.burst
	if t.unsolicited {
		limit = min(t.edtl, c.params.firstBurst)
	}
	switch {
	case t.Waits() || t.buf == nil || !t.unsolicited && t.got >= t.burst:
		return false // stale: it has all its data
	case t.unsolicited != (p.TTT == pdu.NoTag) || !t.unsolicited && p.TTT != t.ttt:
		c.Fail("Data-Out with a transfer tag nobody gave")
		return false
	case p.DataSN != t.dataSN, p.Offset != t.got, uint64(p.Offset)+uint64(n) > uint64(limit):
		c.m.check(t, senseDataLost) // with ErrorRecoveryLevel 0 the command is lost
		return false
	}
	return true
}

// dataOut takes write data.
func (c *conn) dataOut(h, data []byte, landedFor *task) {
	t := c.sess.tasks[pdu.ITT(h)]
	if landedFor != nil {
		landedFor.Pinned = false
		if landedFor.Dead {
			c.m.free(landedFor)
			return
		}
		t = landedFor
	}
	if t == nil || !c.fits(t, h, len(data)) {
		return // of a task that has ended: legal, and of no use
	}
	var p pdu.DataOut
	_ = p.Decode(h)
	if landedFor == nil {
		copy(t.buf[p.Offset:], data)
	}
	t.got += uint32(len(data))
	t.dataSN++
	if !p.Final {
		return
	}
	if !t.unsolicited && t.got < t.burst {
		c.m.check(t, senseDataLost)
		return
	}
	if t.unsolicited {
		t.unsolicited, t.asked = false, t.got
	}
	if t.got >= t.need {
		c.m.ready(t)
		return
	}
	c.ask(t)
}

// ready is a command with all its data: faults first, then execution.
func (m *Machine) ready(t *task) {
	if m.attended(t) {
		return
	}
	if m.Meet(&t.Task) {
		return
	}
	m.execute(t)
}

// keep makes t outlive the PDU it came with.
func (m *Machine) keep(t *task) bool {
	if t.buf == nil && len(t.data) > 0 {
		data := t.data
		if !m.buffer(t, len(data)) {
			return false
		}
		copy(t.buf, data)
		t.data = t.buf
	}
	if t.conn != nil {
		t.conn.list(t)
	}
	return true
}

// unlist takes t out of its session.
func (m *Machine) unlist(t *task) {
	if t.listed {
		t.listed = false
		delete(t.sess.tasks, t.itt)
	}
}

// abort ends a task without an answer: it does not execute. A job of its that
// runs goes on: see WhenOver.
func (m *Machine) abort(t *task) {
	m.stats.Aborted++
	m.unlist(t)
	free := m.Cancel(&t.Task)
	m.open(t)
	if t.conn == nil {
		m.NotLate()
	}
	if free {
		m.free(t)
	}
}

// open gives the command's place in the window back.
func (m *Machine) open(t *task) {
	if !t.immediate {
		t.sess.maxCmdSN++
	}
}
