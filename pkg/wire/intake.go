package wire

import (
	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/bufpool"
)

// Parser reads what is received.
type Parser interface {
	// Header starts the next PDU, of which avail is received, maybe all. It
	// consumes it, or its header and lands or skips the rest; more is false when
	// it needs more bytes first. An error ends the flow.
	Header(avail []byte) (more bool, err error)
	// Trailer is how many bytes follow n bytes of landed payload; Check gets them,
	// with the payload's digest; Landed ends the PDU.
	Trailer(n int) int
	Check(trailer []byte, n int, sum uint32) error
	Landed() error
}

// intakeState is what the next received bytes are.
type intakeState uint8

const (
	inHeader  intakeState = iota // a header, whole in the batch buffer
	inLanding                    // payload that goes straight to its destination
	inSkip                       // payload nobody wants
	inTrailer                    // padding and digest behind a landed payload
)

// Intake is where received bytes go: the reader asks Space, and Fed takes them.
// It never parses a byte twice and never blocks. Reader's.
type Intake struct {
	p       Parser
	sum     func(uint32, []byte) uint32 // nil: payload has no digest
	elastic bufpool.Elastic
	buf     []byte // elastic's
	// buf[r:w] is received and not parsed.
	r, w int
	st   intakeState
	// peek bounds what is received ahead while large payloads come, bytes: what
	// comes with their header would have to be copied. 0: no bound.
	peek int

	dst    []byte       // inLanding: rest of the destination, or of its piece
	rest   int          // inLanding: bytes of the payload behind dst, in further pieces
	skip   int          // inSkip: rest
	length int          // of the payload landing, bytes
	crc    uint32       // its digest so far
	cmd    *blk.Command // whose pieces it lands in
	off    uint32       // of the payload in those
}

func (in *Intake) init(p Parser, sum func(uint32, []byte) uint32) {
	in.p, in.sum = p, sum
	in.buf = in.elastic.Next(nil)
}

// Space says where the next received bytes go: first a, then b, which may be
// nil. Both are valid until Fed.
func (in *Intake) Space() (a, b []byte) {
	if in.st == inLanding {
		// Nothing is left in the buffer then.
		in.buf = in.elastic.Next(nil)
		if in.peek > 0 {
			return in.dst, in.buf[:in.peek]
		}
		return in.dst, in.buf
	}
	// A partial PDU moves to the front: rare, and less than one PDU.
	in.buf = in.elastic.Next(in.buf[in.r:in.w])
	in.r, in.w = 0, in.w-in.r
	a = in.buf[in.w:]
	if in.w < in.peek {
		a = in.buf[in.w:in.peek]
	}
	return a, nil
}

// Fed takes n bytes received into what Space returned. An error ends the flow.
func (in *Intake) Fed(n int) error {
	if in.st == inLanding {
		k := min(n, len(in.dst))
		in.fill(k)
		n -= k
	}
	in.w += n
	in.elastic.Filled(in.w)
	for {
		more, err := in.parse()
		if err != nil || !more {
			return err
		}
	}
}

// parse takes one step; more is false when it needs more bytes.
func (in *Intake) parse() (more bool, err error) {
	avail := in.buf[in.r:in.w]
	switch in.st {
	case inHeader:
		return in.p.Header(avail)
	case inLanding:
		n := copy(in.dst, avail)
		in.fill(n)
		in.Consume(n)
		return n > 0, nil
	case inSkip:
		n := min(in.skip, len(avail))
		in.Consume(n)
		if in.skip -= n; in.skip == 0 {
			in.st = inHeader
		}
		return in.skip == 0, nil
	case inTrailer:
		n := in.p.Trailer(in.length)
		if len(avail) < n {
			return false, nil
		}
		if err := in.p.Check(avail[:n], in.length, in.crc); err != nil {
			return false, err
		}
		in.Consume(n)
		in.st = inHeader
		return true, in.p.Landed()
	}
	return false, nil
}

// Consume takes n bytes off what is available.
func (in *Intake) Consume(n int) {
	if in.r += n; in.r == in.w {
		in.r, in.w = 0, 0
	}
}

// Sum is the digest of data that was received as a whole.
func (in *Intake) Sum(data []byte) uint32 {
	if in.sum == nil {
		return 0
	}
	return in.sum(0, data)
}

// Whole reports whether a small PDU of n bytes is available as a whole. If not,
// fits says that waiting for it will do: the buffer can hold it.
func (in *Intake) Whole(n int) (all, fits bool) {
	if in.w-in.r >= n {
		if in.peek > 0 {
			in.peek = bulkPeek // more small ones may come between the large
		}
		return true, true
	}
	if n > len(in.buf) {
		return false, false
	}
	in.peek = 0
	return false, true
}

// Skip throws away the next n bytes behind the start available ones.
func (in *Intake) Skip(start, n int) {
	in.Consume(start)
	if in.skip = n; n > 0 {
		in.st = inSkip
	}
}

// Land begins to fill dst with the payload behind the start available bytes.
func (in *Intake) Land(dst []byte, start int) {
	in.cmd = nil
	in.land(dst, start, len(dst))
}

// LandIn begins to fill c's buffer, or pieces, from off with n payload bytes
// behind start. next is how much at most is received ahead of a further one.
func (in *Intake) LandIn(c *blk.Command, off uint32, start, n, next int) {
	in.cmd, in.off = c, off
	in.peek = 0
	in.land(c.Piece(off), start, n)
	if n >= bulkMin && c.Vec == nil {
		in.peek = next
	}
}

// land fills dst and what follows it. What is received already is copied by parse.
func (in *Intake) land(dst []byte, start, n int) {
	in.length, in.crc = n, 0
	in.dst = dst[:min(n, len(dst))]
	in.rest = n - len(in.dst)
	in.Consume(start)
	in.st = inLanding
	in.fill(0)
}

// fill takes note of n bytes landed in dst; at its end the next piece follows.
func (in *Intake) fill(n int) {
	if in.sum != nil {
		in.crc = in.sum(in.crc, in.dst[:n])
	}
	in.dst = in.dst[n:]
	if len(in.dst) > 0 {
		return
	}
	if in.rest == 0 {
		in.st = inTrailer
		return
	}
	p := in.cmd.Piece(in.off + uint32(in.length-in.rest))
	in.dst = p[:min(len(p), in.rest)]
	in.rest -= len(in.dst)
}

// Bulky reports whether large payloads come one at a time.
func (in *Intake) Bulky() bool { return in.peek > 0 }
