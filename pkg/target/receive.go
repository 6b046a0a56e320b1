package target

import (
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// conn is one connection's protocol state.
type conn struct {
	Conn
	m      *Machine
	portal *portal
	sess   *session // nil until logged in
	login  *login
	layout pdu.Layout
	params params
	began  time.Time // of the login

	header [pdu.HeaderLen]byte // of the PDU whose data lands, and for reject
	task   *task               // of the segment that lands, for SCSI commands

	statSN  uint32
	cid     uint16
	pongs   int    // answers to our pings
	waiting bool   // a login or logout waits for jobs to be over; nothing may come
	text    []byte // rest of a text answer
	textTTT uint32
}

// Connect begins a connection at a portal; nil when there are too many, or no
// such portal.
func (m *Machine) Connect(portal int, now time.Time) *Conn {
	p := m.portal(portal)
	if p == nil || m.Full() {
		return nil
	}
	c := &conn{m: m, portal: p, login: &login{}, params: defaultParams(&m.cfg), began: now}
	c.Begin(&m.Core, c)
	m.Rouse()
	p.conns[c] = struct{}{}
	return &c.Conn
}

// Lost implements serve.Wire.
func (c *conn) Lost() {
	delete(c.portal.conns, c)
	if s := c.sess; s != nil && s.conn == c {
		c.m.lost(s)
	}
	c.freeLanding()
}

// Step implements serve.Wire.
func (c *conn) Step() bool {
	b := c.Unread()
	if len(b) < pdu.HeaderLen {
		return false
	}
	start := c.layout.DataStart(pdu.AHSLen(b))
	if len(b) < start {
		return false
	}
	if err := c.layout.CheckHeader(b[:start]); err != nil {
		c.Fail(err.Error())
		return false
	}
	n := pdu.DataLen(b)
	if n > int(c.params.maxRecv) {
		c.Fail("data segment longer than declared")
		return false
	}
	total := start + n + c.layout.Trailer(n)
	if len(b) >= total {
		data := b[start : start+n : start+n]
		if c.layout.CheckTrailer(b[start+n:total], n, c.crc(data)) != nil {
			c.Fail(pdu.ErrDataDigest.Error())
			return false
		}
		c.Consume(total)
		c.receive(b[:pdu.HeaderLen], data, nil, false)
		return true
	}
	return c.begin(b, start, n, total)
}

func (c *conn) crc(b []byte) uint32 {
	if !c.layout.DataDigest {
		return 0
	}
	return pdu.CRC(0, b)
}

// begin decides how the rest of a PDU's data is received.
func (c *conn) begin(b []byte, start, n, total int) bool {
	if c.Waits(total, n, len(b)-start) {
		return false // the rest comes into the buffer
	}
	if !c.TooLong(total) && !c.lands(b) {
		return false
	}
	copy(c.header[:], b)
	land := c.place(n)
	if c.Closing() {
		return false
	}
	c.Consume(start)
	if land == nil {
		c.Skip(n + c.layout.Trailer(n))
		return true
	}
	c.Land(land, c.layout.Trailer(n))
	return true
}

// Landed implements serve.Wire.
func (c *conn) Landed(data, trailer []byte) {
	if c.layout.CheckTrailer(trailer, len(data), c.crc(data)) != nil {
		c.Fail(pdu.ErrDataDigest.Error())
		return
	}
	t := c.task
	c.task = nil
	c.receive(c.header[:], data, t, true)
}

// freeLanding gives back what a broken connection was receiving.
func (c *conn) freeLanding() {
	if t := c.task; t != nil {
		t.Pinned = false
		if t.Dead || t.sess == nil {
			c.m.free(t)
		}
	}
	c.task = nil
}

// lands reports whether the PDU's data has a place of its own.
func (c *conn) lands(b []byte) bool {
	op, _ := pdu.Op(b)
	return c.sess != nil && (op == pdu.OpSCSICommand || op == pdu.OpDataOut)
}

// place finds where the n data bytes of c.header go; nil: they are skipped.
func (c *conn) place(n int) (land []byte) {
	if !c.lands(c.header[:]) {
		c.Fail("data segment too long for its kind of PDU")
		return land
	}
	if op, _ := pdu.Op(c.header[:]); op == pdu.OpDataOut {
		if t := c.sess.tasks[pdu.ITT(c.header[:])]; t != nil && c.fits(t, c.header[:], n) {
			var p pdu.DataOut
			_ = p.Decode(c.header[:])
			t.Pinned = true
			c.task, land = t, t.buf[p.Offset:int(p.Offset)+n]
		}
		return land
	}
	var p pdu.SCSICommand
	_ = p.Decode(c.header[:])
	if !c.immediateFits(&p, n) {
		return land
	}
	t := c.m.newTask()
	if p.EDTL > serve.MaxTransfer || !c.m.buffer(t, int(p.EDTL)) {
		// The answer comes before its data is skipped: BUSY or too long.
		c.receive(c.header[:], nil, t, true)
		return land
	}
	c.task = t
	return t.buf[:n]
}
