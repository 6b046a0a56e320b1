package subsystem

import (
	"errors"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// conn is one connection's protocol state.
type conn struct {
	serve.Conn
	m      *Machine
	portal *portal
	q      *queue // its ctrl is nil until connected
	began  time.Time
	auth   *authState // nil: nothing to prove

	initialized bool
	in, out     pdu.Layout
	maxH2C      uint32

	header [pdu.HeaderLen]byte // of the H2CData whose data lands
	landed pdu.Header
	task   *task // of the data that lands
}

// Connect begins a connection at a portal; nil when there are too many, or no
// such portal.
func (m *Machine) Connect(portal int, now time.Time) *serve.Conn {
	p := m.portal(portal)
	if p == nil || m.Full() || p.Group == 0 {
		return nil
	}
	c := &conn{m: m, portal: p, began: now}
	c.q = &queue{m: m, conn: c, size: 2, tasks: map[uint16]*task{}}
	c.Begin(&m.Core, c)
	m.Rouse()
	p.conns[c] = struct{}{}
	return &c.Conn
}

// Lost implements serve.Wire.
func (c *conn) Lost() {
	delete(c.portal.conns, c)
	if t := c.task; t != nil {
		c.task, t.Pinned = nil, false
		if t.Dead {
			t.Free()
		}
	}
	c.m.lost(c.q)
}

// fault ends the connection as the transport says: with a terminate request
// (TCP 3.5). b is what the PDU at fault begins with.
func (c *conn) fault(err error, b []byte) {
	if c.Closing() {
		return
	}
	var f *pdu.Fault
	if !errors.As(err, &f) {
		f = &pdu.Fault{Status: pdu.InvalidField, Text: err.Error()}
	}
	term := pdu.TermReq{FromController: true, Status: f.Status, Info: f.Info, Offender: b[:min(len(b), pdu.MaxTermData)]}
	p := term.Append(nil)
	copy(c.Out.Room(len(p)), p)
	c.Fail(f.Error())
}

// wrong makes a fault of a field of the PDU.
func wrong(status uint16, at uint32, text string) error {
	return &pdu.Fault{Status: status, Info: at, Text: text}
}

// Step implements serve.Wire.
func (c *conn) Step() bool {
	b := c.Unread()
	h, more, err := c.in.Open(b)
	if err == nil && len(b) >= pdu.CommonLen {
		err = c.expected(&h)
	}
	if err != nil {
		c.fault(err, b)
		return false
	}
	if more > 0 {
		return false
	}
	if len(b) >= h.Size {
		data := b[h.DataOff : h.DataOff+h.Data : h.DataOff+h.Data]
		intact := c.in.CheckTrailer(b[h.DataOff+h.Data:h.Size], h.Data, c.crc(data)) == nil
		c.Consume(h.Size)
		c.receive(h, b, data, intact)
		return !c.Closing()
	}
	if h.Type != pdu.TypeH2CData || c.Waits(h.Size, h.Data, len(b)-h.DataOff) {
		return false // the rest comes into the buffer
	}
	return c.land(h, b)
}

// expected refuses what may not come now, before its data is waited for.
func (c *conn) expected(h *pdu.Header) error {
	var most int
	switch h.Type {
	case pdu.TypeICReq:
		if c.initialized {
			return wrong(pdu.SequenceError, 0, "ICReq twice")
		}
		return nil
	case pdu.TypeH2CTerm:
		most = pdu.MaxTermData
	case pdu.TypeCapsuleCmd:
		most = max(c.m.cfg.InCapsule, pdu.AdminCapsuleData)
	case pdu.TypeH2CData:
		most = int(c.maxH2C)
	default:
		return wrong(pdu.InvalidField, 0, "a host does not send "+h.Type.String())
	}
	if !c.initialized {
		return wrong(pdu.SequenceError, 0, h.Type.String()+" before ICReq")
	}
	if h.Data > most {
		return wrong(pdu.TransferLimit, 4, h.Type.String()+" with more data than may be")
	}
	return nil
}

func (c *conn) crc(b []byte) uint32 {
	if !c.in.DataDigest {
		return 0
	}
	return pdu.CRC(0, b)
}

// land receives the data of an H2CData straight into its task's buffer.
func (c *conn) land(h pdu.Header, b []byte) bool {
	p, t, err := c.solicited(h, b)
	if err != nil {
		c.fault(err, b)
		return false
	}
	copy(c.header[:], b)
	c.landed, c.task = h, t
	c.Consume(h.DataOff)
	if t == nil {
		c.Skip(h.Data + c.in.Trailer(h.Data))
		return true
	}
	t.Pinned = true
	c.Land(t.buf[p.Offset:p.Offset+p.Len], c.in.Trailer(h.Data))
	return true
}

// Landed implements serve.Wire.
func (c *conn) Landed(data, trailer []byte) {
	t := c.task
	c.task, t.Pinned = nil, false
	intact := c.in.CheckTrailer(trailer, len(data), c.crc(data)) == nil
	if t.Dead {
		t.Free()
		return
	}
	c.got(t, uint32(len(data)), intact)
}

// receive handles one whole PDU, which b begins with.
func (c *conn) receive(h pdu.Header, b, data []byte, intact bool) {
	switch h.Type {
	case pdu.TypeICReq:
		var req pdu.ICReq
		if err := req.Decode(b); err != nil {
			c.fault(err, b)
			return
		}
		resp := c.m.accept(&req)
		resp.Put(c.Out.Room(pdu.InitLen))
		c.Touch()
		c.begin(&req, &resp)
	case pdu.TypeH2CTerm:
		c.Close() // the host says why in a PDU that nobody reads
	case pdu.TypeCapsuleCmd:
		var cmd nvme.Command
		_ = cmd.Decode(pdu.Entry(b)) // as long as it is
		c.capsule(&cmd, data, intact)
	default:
		p, t, err := c.solicited(h, b)
		if err != nil {
			c.fault(err, b)
			return
		}
		if t != nil {
			copy(t.buf[p.Offset:], data)
			c.got(t, p.Len, intact)
		}
	}
}

// accept is the answer to req.
func (m *Machine) accept(req *pdu.ICReq) pdu.ICResp {
	return pdu.ICResp{Align: m.cfg.Align, HeaderDigest: req.HeaderDigest && !m.cfg.NoDigests,
		DataDigest: req.DataDigest && !m.cfg.NoDigests, MaxH2CData: m.cfg.MaxH2CData}
}

// begin is the connection after ICResp.
func (c *conn) begin(req *pdu.ICReq, resp *pdu.ICResp) {
	c.initialized = true
	c.in, c.out = resp.Layouts(req)
	c.maxH2C = resp.MaxH2CData
}
