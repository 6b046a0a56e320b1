package subsystem

import (
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// capsule begins a command.
func (c *conn) capsule(cmd *nvme.Command, data []byte, intact bool) {
	m, q := c.m, c.q
	t := m.newTask()
	t.q, t.conn, t.cmd = q, c, *cmd
	if q.tasks[cmd.CID] != nil {
		t.answer(nvme.CIDConflict.Final())
		return
	}
	if len(q.tasks) >= q.size {
		t.Free()
		c.Fail("more commands than the queue has entries")
		return
	}
	m.stats.Commands++
	q.head = uint16((int(q.head) + 1) % q.size)
	if x := q.ctrl; x != nil && (!m.cfg.NoTBKAS || cmd.Opcode == nvme.AdminKeepAlive && q.id == 0) {
		x.seen = m.Now()
	}
	want, bad := t.check()
	if !bad.OK() {
		t.answer(bad)
		return
	}
	if cmd.Direction() != nvme.HostToController || want == 0 {
		t.ready()
		return
	}
	t.need = want
	c.collect(t, data, intact)
}

// check decides whether a command may come now, and how much data it has.
func (t *task) check() (want uint32, bad nvme.Status) {
	if bad = t.cmd.Check(); bad.OK() {
		bad = t.admitted()
	}
	if bad.OK() {
		want, bad = t.wants()
	}
	sgl := t.cmd.SGL
	switch {
	case !bad.OK():
	case sgl.Kind == nvme.SGLInCapsule && t.q.id != 0 && t.cmd.Opcode != nvme.OpFabrics && sgl.Len > uint32(t.m.cfg.InCapsule):
		bad = nvme.SGLLengthInvalid.Final()
	case want == 0:
	case t.cmd.Direction() == nvme.HostToController && sgl.Len != want, sgl.Len < want:
		bad = nvme.SGLLengthInvalid.Final()
	case t.cmd.Direction() != nvme.HostToController && sgl.Kind != nvme.SGLTransport:
		bad = nvme.SGLTypeInvalid.Final()
	}
	return want, bad
}

// admitted reports whether the queue's state allows the command.
func (t *task) admitted() nvme.Status {
	x, fabrics := t.q.ctrl, t.cmd.Opcode == nvme.OpFabrics
	switch {
	case x == nil:
		if !fabrics || t.cmd.Fabrics() != nvme.Connect {
			return nvme.SequenceError.Final()
		}
	case fabrics:
		return t.conn.fabricsAllowed(t.cmd.Fabrics())
	case t.conn.unproven():
		return nvme.AuthRequired.Final()
	case t.q.id == 0:
		if !x.ready && t.cmd.Opcode != nvme.AdminKeepAlive {
			return nvme.SequenceError.Final()
		}
	case !x.usable():
		return nvme.SQDeleted
	}
	return nvme.Success
}

// wants is the data that a command moves, bytes.
func (t *task) wants() (uint32, nvme.Status) {
	switch {
	case t.cmd.Opcode == nvme.OpFabrics:
		return t.fabricsWants()
	case t.q.id == 0:
		return t.adminWants()
	}
	return t.ioWants()
}

// collect gets the data of a command.
func (c *conn) collect(t *task, data []byte, intact bool) {
	if t.cmd.SGL.Kind == nvme.SGLInCapsule {
		switch {
		case uint32(len(data)) != t.need:
			t.answer(nvme.SGLLengthInvalid.Final())
		case !intact:
			t.answer(nvme.TransientTransport)
		default:
			t.data, t.got = data, t.need
			t.ready()
		}
		return
	}
	if !t.buffer(int(t.need)) {
		t.Busy()
		return
	}
	t.data = t.buf
	t.list()
	c.ask(t)
}

// ask sends an R2T for what comes next (TCP 3.3.2). One is open at a time.
func (c *conn) ask(t *task) {
	n := min(t.need-t.got, c.m.cfg.R2TSize)
	c.q.tag++
	t.tag, t.end = c.q.tag, t.got+n
	p := pdu.R2T{CID: t.cmd.CID, Tag: t.tag, Offset: t.got, Len: n}
	b := c.Out.Room(pdu.HeaderLen + pdu.DigestLen)
	c.Out.Shorten(len(b) - p.Put(b, c.out))
	c.Touch()
}

// solicited finds the task that an H2CData is for; nil when its controller was
// reset or shut down meanwhile. Everything else that no R2T asked for is a fault.
func (c *conn) solicited(h pdu.Header, b []byte) (p pdu.Data, t *task, err error) {
	if err := p.DecodeH2C(b, h); err != nil {
		return p, nil, err
	}
	t = c.q.tasks[p.CID]
	if t == nil && c.q.ctrl != nil && !c.q.ctrl.usable() {
		return p, nil, nil
	}
	switch {
	case t == nil || t.Waits() || t.got >= t.end || p.Tag != t.tag:
		return p, nil, wrong(pdu.InvalidField, 8, "H2CData for no R2T")
	case p.Offset != t.got || uint64(p.Offset)+uint64(p.Len) > uint64(t.end):
		return p, nil, wrong(pdu.OutOfRange, 12, "H2CData beyond its R2T")
	case p.Last != (p.Offset+p.Len == t.end):
		return p, nil, wrong(pdu.InvalidField, 1, "H2CData with LAST_PDU at the wrong place")
	}
	return p, t, nil
}

// got takes n bytes of t's data.
func (c *conn) got(t *task, n uint32, intact bool) {
	if t.got += n; !intact {
		t.doomed = nvme.TransientTransport
	}
	switch {
	case t.got < t.end:
	case t.got < t.need:
		c.ask(t)
	default:
		t.ready()
	}
}

// ready is a command with all its data: faults first, then execution.
func (t *task) ready() {
	if !t.doomed.OK() {
		t.answer(t.doomed)
		return
	}
	if t.faulty() && t.m.Meet(&t.Task) {
		return
	}
	t.Execute()
}

// faulty: what opens queues and what waits for events meets no faults.
func (t *task) faulty() bool {
	return t.cmd.Opcode != nvme.OpFabrics && !(t.admin() && t.cmd.Opcode == nvme.AdminAsyncEvent)
}

// Execute implements serve.Command.
func (t *task) Execute() {
	switch {
	case t.cmd.Opcode == nvme.OpFabrics:
		t.fabrics()
	case t.admin():
		t.executeAdmin()
	default:
		t.executeIO()
	}
}

var _ serve.Command = (*task)(nil)
