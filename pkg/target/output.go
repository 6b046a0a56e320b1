package target

import (
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
)

// Batch is output on its way to the wire: one gather list. A caller keeps two
// and swaps them with Conn.Take.
type Batch struct {
	buf  []byte
	cuts []cut
	vec  [][]byte
	n    int
	// owned are buffers of m's that cuts point into; Reset gives them back.
	owned [][]byte
	m     *Machine
}

// cut is foreign memory that goes between buf[:at] and buf[at:].
type cut struct {
	at  int
	ext []byte
}

// Len is the bytes of the batch.
func (b *Batch) Len() int { return b.n }

// Vectors are the batch's bytes in order, valid until Reset.
func (b *Batch) Vectors() [][]byte {
	b.vec = b.vec[:0]
	from := 0
	for _, c := range b.cuts {
		if c.at > from {
			b.vec = append(b.vec, b.buf[from:c.at])
			from = c.at
		}
		b.vec = append(b.vec, c.ext)
	}
	if from < len(b.buf) {
		b.vec = append(b.vec, b.buf[from:])
	}
	return b.vec
}

// Reset empties the batch and keeps its memory. It needs the machine's lock: the
// batch gives back what it owns.
func (b *Batch) Reset() {
	clear(b.cuts)
	clear(b.vec)
	b.buf, b.cuts, b.vec, b.n = b.buf[:0], b.cuts[:0], b.vec[:0], 0
	for i, o := range b.owned {
		b.m.giveBack(o)
		b.owned[i] = nil
	}
	b.owned = b.owned[:0]
}

// own makes the batch the owner of a buffer it refers to.
func (b *Batch) own(m *Machine, buf []byte) {
	b.m = m
	b.owned = append(b.owned, buf)
}

// header adds a PDU's header and returns it for Put; the caller then calls
// seal, and adds the data segment.
func (b *Batch) header() []byte {
	at := len(b.buf)
	b.buf = append(b.buf, make([]byte, pdu.HeaderLen)...)
	b.n += pdu.HeaderLen
	return b.buf[at : at+pdu.HeaderLen]
}

// seal adds the header digest of the header just put.
func (b *Batch) seal(l pdu.Layout) {
	if !l.HeaderDigest {
		return
	}
	at := len(b.buf) - pdu.HeaderLen
	b.buf = append(b.buf, 0, 0, 0, 0)
	b.n += l.PutHeaderDigest(b.buf[at:])
}

// data adds a copied data segment with padding and digest.
func (b *Batch) data(l pdu.Layout, d []byte) {
	copy(b.room(len(d)), d)
	b.trailer(l, len(d), d)
}

// room adds n bytes for the caller to fill.
func (b *Batch) room(n int) []byte {
	at := len(b.buf)
	if cap(b.buf)-at < n {
		b.buf = append(b.buf, make([]byte, n)...)
	}
	b.buf = b.buf[:at+n]
	b.n += n
	return b.buf[at:]
}

// refer adds a data segment by reference, with padding and digest.
func (b *Batch) refer(l pdu.Layout, d []byte) {
	if len(d) > 0 {
		b.cuts = append(b.cuts, cut{len(b.buf), d})
		b.n += len(d)
	}
	b.trailer(l, len(d), d)
}

func (b *Batch) trailer(l pdu.Layout, n int, d []byte) {
	t := l.Trailer(n)
	if t == 0 {
		return
	}
	var sum uint32
	if l.DataDigest {
		sum = pdu.CRC(0, d)
	}
	l.PutTrailer(b.room(t), n, sum)
}

// mark and rollback undo what was added without references since.
func (b *Batch) mark() (buf, n int) { return len(b.buf), b.n }

func (b *Batch) rollback(buf, n int) { b.buf, b.n = b.buf[:buf], n }
