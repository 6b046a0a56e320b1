package iscsi

import (
	"github.com/csi-mpath/csi-mpath/pkg/bufpool"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
)

// rxState is what the next received bytes are.
type rxState uint8

const (
	rxHeader  rxState = iota // a header, whole in the batch buffer
	rxLanding                // payload that goes straight to its destination
	rxSkip                   // payload nobody wants
	rxTrailer                // padding and digest behind a landed payload
)

// receiver is the receive half of the machine: the reader asks space where
// the next bytes go, and fed takes them. It never parses a byte twice and
// never blocks.
type receiver struct {
	m       *machine
	elastic bufpool.Elastic
	buf     []byte // elastic's
	// buf[r:w] is received and not parsed.
	r, w int
	st   rxState
	// peek bounds what is received ahead while large payloads come, bytes: what
	// comes with their header would have to be copied. 0: no bound.
	peek int

	dst    []byte // rxLanding: rest of the destination, or of its piece
	rest   int    // rxLanding: bytes of the payload behind dst, in further pieces
	skip   int    // rxSkip: rest
	length int    // of the payload landing, bytes
	sum    uint32 // its CRC so far
	task   *task  // it belongs to; nil: it is whole in other
	din    pdu.DataIn
	header [pdu.HeaderLen]byte
	other  []byte // a large data segment of another PDU, being collected

	touched []*LUN // completed something in this batch
	// pongs counts answers to pings that wait to be sent. Written by reader and sender.
	pongs counter
	stats rxStats
}

// rxStats counts oddities that are tolerated. Reader's.
type rxStats struct {
	vendorEvents int
}

func (r *receiver) init(m *machine) {
	r.m = m
	r.buf = r.elastic.Next(nil)
}

// space says where the next received bytes go: first a, then b, which may be
// nil. Both are valid until fed.
func (r *receiver) space() (a, b []byte) {
	if r.st == rxLanding {
		// Nothing is left in the buffer then.
		r.buf = r.elastic.Next(nil)
		if r.peek > 0 {
			return r.dst, r.buf[:r.peek]
		}
		return r.dst, r.buf
	}
	// A partial PDU moves to the front: rare, and less than one PDU.
	r.buf = r.elastic.Next(r.buf[r.r:r.w])
	r.r, r.w = 0, r.w-r.r
	a = r.buf[r.w:]
	if r.w < r.peek {
		a = r.buf[r.w:r.peek]
	}
	return a, nil
}

// fed takes n bytes received into what space returned. An error ends the
// session.
func (r *receiver) fed(n int) error {
	if r.st == rxLanding {
		k := min(n, len(r.dst))
		r.fill(k)
		n -= k
	}
	r.w += n
	r.elastic.Filled(r.w)
	for {
		more, err := r.parse()
		if err != nil || !more {
			return err
		}
	}
}

func (r *receiver) crc(sum uint32, b []byte) uint32 {
	if !r.m.p.DataDigest {
		return 0
	}
	return pdu.CRC(sum, b)
}

// parse takes one step; more is false when it needs more bytes.
func (r *receiver) parse() (more bool, err error) {
	avail := r.buf[r.r:r.w]
	switch r.st {
	case rxHeader:
		return r.parseHeader(avail)
	case rxLanding:
		n := copy(r.dst, avail)
		r.fill(n)
		r.consume(n)
		return n > 0, nil
	case rxSkip:
		n := min(r.skip, len(avail))
		r.consume(n)
		if r.skip -= n; r.skip == 0 {
			r.st = rxHeader
		}
		return r.skip == 0, nil
	case rxTrailer:
		n := r.m.p.Trailer(r.length)
		if len(avail) < n {
			return false, nil
		}
		if err := r.m.p.CheckTrailer(avail[:n], r.length, r.sum); err != nil {
			return false, violation("%v", err)
		}
		r.consume(n)
		r.st = rxHeader
		return true, r.landed()
	}
	return false, nil
}

func (r *receiver) consume(n int) {
	if r.r += n; r.r == r.w {
		r.r, r.w = 0, 0
	}
}

// parseHeader starts the next PDU. Data-In lands where it belongs; everything
// else is handled when it is whole.
func (r *receiver) parseHeader(avail []byte) (more bool, err error) {
	if len(avail) < pdu.HeaderLen {
		return false, nil
	}
	p, start := &r.m.p, r.m.p.DataStart(pdu.AHSLen(avail))
	n := pdu.DataLen(avail)
	op, _ := pdu.Op(avail)
	if n > int(p.MaxRecv) {
		return false, violation("%v with a data segment of %d bytes, %d allowed", op, n, p.MaxRecv)
	}
	if n > maxOtherData && op != pdu.OpDataIn && op != pdu.OpTextResponse {
		return false, violation("%v with a data segment of %d bytes", op, n)
	}
	if len(avail) < start {
		return false, nil
	}
	if err := p.CheckHeader(avail[:start]); err != nil {
		return false, violation("%v", err)
	}
	if op == pdu.OpDataIn {
		return true, r.startData(avail, start, n)
	}
	whole := start + n + p.Trailer(n)
	if len(avail) >= whole {
		if r.peek > 0 {
			r.peek = bulkPeek // more small ones may come between the large
		}
		data := avail[start : start+n]
		if err := p.CheckTrailer(avail[start+n:whole], n, r.crc(0, data)); err != nil {
			return false, violation("%v", err)
		}
		err = r.handle(op, avail[:pdu.HeaderLen], data)
		r.consume(whole)
		return true, err
	}
	if whole <= len(r.buf) {
		r.peek = 0
		return false, nil
	}
	// A text larger than the batch buffer is collected in a buffer of its own.
	copy(r.header[:], avail)
	r.task, r.other = nil, make([]byte, n)
	r.land(r.other, start, n)
	return true, nil
}

// land begins to fill dst, and for Data-In the pieces that follow it, with the
// n payload bytes behind start. What is received already is copied by parse.
func (r *receiver) land(dst []byte, start, n int) {
	r.length, r.sum = n, 0
	r.dst = dst[:min(n, len(dst))]
	r.rest = n - len(r.dst)
	r.consume(start)
	r.st = rxLanding
	r.fill(0)
}

// fill takes note of n bytes landed in dst; at its end the next piece follows.
func (r *receiver) fill(n int) {
	r.sum = r.crc(r.sum, r.dst[:n])
	r.dst = r.dst[n:]
	if len(r.dst) > 0 {
		return
	}
	if r.rest == 0 {
		r.st = rxTrailer
		return
	}
	// Data-In only: the payload so far is length - rest.
	p := r.task.cmd.Piece(r.din.Offset + uint32(r.length-r.rest))
	r.dst = p[:min(len(p), r.rest)]
	r.rest -= len(r.dst)
}

// startData checks a Data-In header against its command and lands its payload
// in the command's buffer.
func (r *receiver) startData(avail []byte, start, n int) error {
	d := &r.din
	if err := d.Decode(avail); err != nil {
		return violation("%v", err)
	}
	r.m.window(d.Window, d.HasStatus)
	k, err := r.m.tasks.find(d.ITT)
	if err != nil {
		return err
	}
	if k == nil {
		r.consume(start)
		if r.skip = n + r.m.p.Trailer(n); r.skip > 0 {
			r.st = rxSkip
		}
		return nil
	}
	if err := checkDataIn(d, k); err != nil {
		return err
	}
	r.task = k
	r.peek = 0
	r.land(k.cmd.Piece(d.Offset), start, n)
	if n >= bulkMin && k.cmd.Vec == nil {
		r.peek = r.m.p.Trailer(n) + r.m.p.DataStart(0) // the next header, no more
	}
	return nil
}

// checkDataIn refuses data that does not fit its command: DataPDUInOrder is
// always Yes, so each PDU continues the one before. MaxBurstLength is
// not checked: tgt ignores it, and nothing here depends on it.
func checkDataIn(d *pdu.DataIn, k *task) error {
	c := k.cmd
	n := uint32(d.DataLen)
	switch {
	case !k.reads():
		return violation("Data-In for a %v", c.Op)
	case d.DataSN != k.dataSN:
		return violation("Data-In with DataSN %d, expected %d", d.DataSN, k.dataSN)
	case n > 0 && d.Offset != c.Moved:
		return violation("Data-In at offset %d, expected %d", d.Offset, c.Moved)
	case n > c.Len-c.Moved:
		return violation("Data-In of %d bytes at offset %d for a read of %d", n, c.Moved, c.Len)
	}
	if n == 0 {
		d.Offset = c.Moved
		if k.empty++; k.empty > maxEmptyDataIn {
			return violation("%d Data-In without data (A target that takes MaxBurstLength for 0 does this)", k.empty)
		}
	} else {
		k.empty = 0
	}
	return nil
}

// landed finishes the PDU whose payload has landed.
func (r *receiver) landed() error {
	k := r.task
	if k == nil {
		data := r.other
		r.other = nil
		op, _ := pdu.Op(r.header[:])
		return r.handle(op, r.header[:], data)
	}
	d := &r.din
	k.dataSN++
	k.cmd.Moved += uint32(d.DataLen)
	if !d.HasStatus {
		return nil
	}
	return r.status(k, 0, d.Status, d.Residual, nil)
}
