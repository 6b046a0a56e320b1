package serve

import "time"

// Wire is the protocol of one connection.
type Wire interface {
	// Step handles one PDU, or begins to; false when more bytes are needed.
	Step() bool
	// Landed handles a PDU whose data was received in place (Conn.Land).
	Landed(data, trailer []byte)
	// Lost is called once, when the transport is closed.
	Lost()
}

// Conn is the bytes of one connection: what comes, cut at any place, and what
// goes. Its protocol embeds it and is its Wire. Under the machine's lock.
type Conn struct {
	core *Core
	wire Wire

	rb   []byte // receive buffer, bytes r..w are not parsed yet
	r, w int
	// A data segment larger than what is buffered: it is received straight
	// into land, or skipped if there is no place for it.
	landing bool
	land    []byte
	filled  int
	trailer int
	skip    int

	// Out is what is to be sent.
	Out Batch

	dirty    bool
	stalled  bool   // stopped parsing for output
	closing  bool   // no more input; close when out is empty
	aborting bool   // with closing: at once, output is void
	gone     bool   // the transport is closed
	cause    string // of closing

	// User is the shell's.
	User any
}

// Begin makes c a connection of a machine.
func (c *Conn) Begin(core *Core, w Wire) {
	c.core, c.wire, c.rb = core, w, make([]byte, RecvBuffer)
	core.conns++
}

// Gone tells that the transport is closed: tasks end, but those that a fault
// keeps to run late.
func (c *Conn) Gone() {
	if c.gone {
		return
	}
	c.gone, c.closing = true, true
	c.core.conns--
	c.wire.Lost()
	c.Out.Reset() // and gives its buffers back
	c.landing, c.land = false, nil
}

// Close ends the connection from our side, after its output.
func (c *Conn) Close() {
	c.closing = true
	c.Touch()
}

// Abort ends it at once; what it still had to say is void.
func (c *Conn) Abort() {
	c.Out.Reset()
	c.aborting = true
	c.Close()
}

// Fail ends it because the peer broke the rules.
func (c *Conn) Fail(cause string) {
	if !c.closing {
		c.core.ProtocolErrors++
		c.cause = cause
		c.Close()
	}
}

// Closing reports that the transport must be closed once the output is sent.
func (c *Conn) Closing() bool { return c.closing }

// Aborting reports that it must be closed at once, and before any other
// connection's output is sent: its session was ended.
func (c *Conn) Aborting() bool { return c.aborting }

// IsGone reports that the transport is closed.
func (c *Conn) IsGone() bool { return c.gone }

// Cause says why the connection was closed for an error, else "".
func (c *Conn) Cause() string { return c.cause }

// Touch tells the shell that the connection has output or is to be closed.
func (c *Conn) Touch() {
	if !c.dirty && !c.gone {
		c.dirty = true
		c.core.dirty = append(c.core.dirty, c)
	}
}

// Take swaps the output with the empty batch b; false when there is none.
func (c *Conn) Take(b *Batch) bool {
	if c.Out.n == 0 {
		return false
	}
	c.Out, *b = *b, c.Out
	return true
}

// Space is where the next bytes go: first a, then b (readv).
func (c *Conn) Space() (a, b []byte) {
	if c.r == c.w {
		c.r, c.w = 0, 0
	}
	if c.landing && c.filled < len(c.land) {
		// Only a header's worth behind it, so that the next segment lands too.
		return c.land[c.filled:], c.rb[c.w:min(len(c.rb), c.w+LandMin)]
	}
	if c.r > 0 && len(c.rb)-c.w < len(c.rb)/2 {
		c.w = copy(c.rb, c.rb[c.r:c.w])
		c.r = 0
	}
	return c.rb[c.w:], nil
}

// Advance takes n bytes that were received into Space, and works.
func (c *Conn) Advance(now time.Time, n int) {
	c.core.now = now
	if c.landing {
		k := min(n, len(c.land)-c.filled)
		c.filled += k
		n -= k
	}
	c.w += n
	for !c.closing && c.Out.n < outHigh && c.step() {
	}
	c.stalled = !c.closing && c.Out.n >= outHigh
	if c.Out.n > 0 || c.closing {
		c.Touch()
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

// Unread is what was received and not consumed.
func (c *Conn) Unread() []byte { return c.rb[c.r:c.w] }

// Consume takes n bytes of Unread. They stay where they are until the next Space.
func (c *Conn) Consume(n int) { c.r += n }

// Waits reports whether a PDU of total bytes, n of them data of which have are
// here, is best waited for in the buffer.
func (c *Conn) Waits(total, n, have int) bool {
	return total <= len(c.rb) && n-have < LandMin || have >= n
}

// TooLong reports whether a PDU of total bytes does not fit in the buffer.
func (c *Conn) TooLong(total int) bool { return total > len(c.rb)-LandMin }

// Skip throws the next n bytes away.
func (c *Conn) Skip(n int) { c.skip = n }

// Land receives the next bytes into place, and a trailer of so many bytes after
// them; then Wire.Landed is called.
func (c *Conn) Land(place []byte, trailer int) {
	c.landing, c.land, c.trailer = true, place, trailer
	c.filled = copy(place, c.rb[c.r:c.w])
	c.r += c.filled
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
	return c.wire.Step()
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
	data, trailer := c.land, c.rb[c.r:c.r+c.trailer]
	c.r += c.trailer
	c.landing, c.land = false, nil
	c.wire.Landed(data, trailer)
	return !c.closing
}

// Wire is the connection's protocol.
func (c *Conn) Wire() Wire { return c.wire }
