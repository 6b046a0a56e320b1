package target

import (
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
)

// Conn is one connection's protocol state.
type Conn struct {
	m      *Machine
	portal *portal
	sess   *session // nil until logged in
	login  *login
	layout pdu.Layout
	params params
	began  time.Time // of the login

	rb   []byte // receive buffer, bytes r..w are not parsed yet
	r, w int
	// A data segment larger than what is buffered: it is received straight
	// into land, or skipped if there is no place for it.
	header  [pdu.HeaderLen]byte
	landing bool
	land    []byte
	filled  int
	trailer int
	task    *task // of the segment that lands, for SCSI commands
	skip    int

	out      Batch
	statSN   uint32
	cid      uint16
	pongs    int // answers to our pings
	dirty    bool
	stalled  bool   // stopped parsing for output
	waiting  bool   // a login or logout waits for jobs to be over; nothing may come
	closing  bool   // no more input; close when out is empty
	aborting bool   // with closing: at once, output is void
	gone     bool   // the transport is closed
	cause    string // of closing
	text     []byte // rest of a text answer
	textTTT  uint32

	// User is the shell's.
	User any
}

// Connect begins a connection at a portal; nil when there are too many, or no
// such portal.
func (m *Machine) Connect(portal int, now time.Time) *Conn {
	p := m.portal(portal)
	if p == nil || m.conns >= maxConns {
		return nil
	}
	c := &Conn{m: m, portal: p, login: &login{}, rb: make([]byte, recvBuffer), params: defaultParams(&m.cfg), began: now}
	m.conns++
	p.conns[c] = struct{}{}
	return c
}

// Gone tells that the transport is closed: tasks end, but those that a fault
// keeps to run late.
func (c *Conn) Gone() {
	if c.gone {
		return
	}
	c.gone, c.closing = true, true
	c.m.conns--
	delete(c.portal.conns, c)
	if s := c.sess; s != nil && s.conn == c {
		c.m.lost(s)
	}
	c.out.Reset() // and gives its buffers back
	c.freeLanding()
}

// close ends the connection from our side, after its output.
func (c *Conn) close() {
	c.closing = true
	c.touch()
}

// fail ends it because the peer broke the rules.
func (c *Conn) fail(cause string) {
	if !c.closing {
		c.m.stats.ProtocolErrors++
		c.cause = cause
		c.close()
	}
}

// Closing reports that the transport must be closed once the output is sent.
func (c *Conn) Closing() bool { return c.closing }

// Aborting reports that it must be closed at once, and before any other
// connection's output is sent: its session was reinstated.
func (c *Conn) Aborting() bool { return c.aborting }

// Cause says why the connection was closed for an error, else "".
func (c *Conn) Cause() string { return c.cause }

func (c *Conn) touch() {
	if !c.dirty && !c.gone {
		c.dirty = true
		c.m.dirty = append(c.m.dirty, c)
	}
}

// Take swaps the output with the empty batch b; false when there is none.
func (c *Conn) Take(b *Batch) bool {
	if c.out.n == 0 {
		return false
	}
	c.out, *b = *b, c.out
	return true
}

// Space is where the next bytes go: first a, then b (readv).
func (c *Conn) Space() (a, b []byte) {
	if c.r == c.w {
		c.r, c.w = 0, 0
	}
	if c.landing && c.filled < len(c.land) {
		// Only a header's worth behind it, so that the next segment lands too.
		return c.land[c.filled:], c.rb[c.w:min(len(c.rb), c.w+landMin)]
	}
	if c.r > 0 && len(c.rb)-c.w < len(c.rb)/2 {
		c.w = copy(c.rb, c.rb[c.r:c.w])
		c.r = 0
	}
	return c.rb[c.w:], nil
}

// Advance takes n bytes that were received into Space, and works.
func (c *Conn) Advance(now time.Time, n int) {
	c.m.now = now
	if c.landing {
		k := min(n, len(c.land)-c.filled)
		c.filled += k
		n -= k
	}
	c.w += n
	for !c.closing && c.out.n < outHigh && c.step() {
	}
	c.stalled = !c.closing && c.out.n >= outHigh
	if c.out.n > 0 || c.closing {
		c.touch()
	}
}

// Backlogged reports that Advance stopped for output: it must be called again,
// with 0, before more is received.
func (c *Conn) Backlogged() bool { return c.stalled }

// Input copies b in, whatever its length. For tests and simulators.
func (c *Conn) Input(now time.Time, b []byte) {
	for len(b) > 0 && !c.closing {
		x, y := c.Space()
		n := copy(x, b)
		if n == len(x) {
			n += copy(y, b[n:])
		}
		b = b[n:]
		c.Advance(now, n)
	}
}

// step handles one PDU or part of one; false when more bytes are needed.
func (c *Conn) step() bool {
	switch {
	case c.skip > 0:
		k := min(c.skip, c.w-c.r)
		c.r += k
		c.skip -= k
		return c.skip == 0
	case c.landing:
		return c.landed()
	}
	b := c.rb[c.r:c.w]
	if len(b) < pdu.HeaderLen {
		return false
	}
	start := c.layout.DataStart(pdu.AHSLen(b))
	if len(b) < start {
		return false
	}
	if err := c.layout.CheckHeader(b[:start]); err != nil {
		c.fail(err.Error())
		return false
	}
	n := pdu.DataLen(b)
	if n > int(c.params.maxRecv) {
		c.fail("data segment longer than declared")
		return false
	}
	total := start + n + c.layout.Trailer(n)
	if len(b) >= total {
		data := b[start : start+n : start+n]
		if c.layout.CheckTrailer(b[start+n:total], n, c.crc(data)) != nil {
			c.fail(pdu.ErrDataDigest.Error())
			return false
		}
		c.r += total
		c.receive(b[:pdu.HeaderLen], data, nil, false)
		return true
	}
	return c.begin(b, start, n, total)
}

func (c *Conn) crc(b []byte) uint32 {
	if !c.layout.DataDigest {
		return 0
	}
	return pdu.CRC(0, b)
}

// begin decides how the rest of a PDU's data is received.
func (c *Conn) begin(b []byte, start, n, total int) bool {
	have := len(b) - start
	if total <= len(c.rb) && n-have < landMin || have >= n {
		return false // the rest comes into the buffer
	}
	if total > len(c.rb)-landMin || c.lands(b) {
		copy(c.header[:], b)
		c.trailer = c.layout.Trailer(n)
		c.place(n)
		if c.closing {
			return false
		}
		c.r += start
		if c.land == nil {
			c.skip = n + c.trailer
			return true
		}
		c.landing = true
		c.filled = copy(c.land, c.rb[c.r:c.w])
		c.r += c.filled
		return true
	}
	return false
}

// landed finishes a PDU whose data was received in place.
func (c *Conn) landed() bool {
	if c.filled < len(c.land) {
		k := copy(c.land[c.filled:], c.rb[c.r:c.w])
		c.filled += k
		c.r += k
	}
	if c.filled < len(c.land) || c.w-c.r < c.trailer {
		return false
	}
	data, t := c.land, c.task
	if c.layout.CheckTrailer(c.rb[c.r:c.r+c.trailer], len(data), c.crc(data)) != nil {
		c.fail(pdu.ErrDataDigest.Error())
		return false
	}
	c.r += c.trailer
	c.landing, c.land, c.task = false, nil, nil
	c.receive(c.header[:], data, t, true)
	return true
}

// freeLanding gives back what a broken connection was receiving.
func (c *Conn) freeLanding() {
	if t := c.task; t != nil {
		t.pinned = false
		if t.dead || t.sess == nil {
			c.m.free(t)
		}
	}
	c.landing, c.land, c.task = false, nil, nil
}

// lands reports whether the PDU's data has a place of its own.
func (c *Conn) lands(b []byte) bool {
	op, _ := pdu.Op(b)
	return c.sess != nil && (op == pdu.OpSCSICommand || op == pdu.OpDataOut)
}

// place finds where the n data bytes of c.header go: c.land, nil to skip them.
func (c *Conn) place(n int) {
	if !c.lands(c.header[:]) {
		c.fail("data segment too long for its kind of PDU")
		return
	}
	if op, _ := pdu.Op(c.header[:]); op == pdu.OpDataOut {
		if t := c.sess.tasks[pdu.ITT(c.header[:])]; t != nil && c.fits(t, c.header[:], n) {
			var p pdu.DataOut
			_ = p.Decode(c.header[:])
			t.pinned = true
			c.task, c.land = t, t.buf[p.Offset:int(p.Offset)+n]
		}
		return
	}
	var p pdu.SCSICommand
	_ = p.Decode(c.header[:])
	if !c.immediateFits(&p, n) {
		return
	}
	t := c.m.newTask()
	if p.EDTL > maxTransfer || !c.m.buffer(t, int(p.EDTL)) {
		// The answer comes before its data is skipped: BUSY or too long.
		c.receive(c.header[:], nil, t, true)
		return
	}
	c.task, c.land = t, t.buf[:n]
}
