package serve

// Batch is output on its way to the wire: one gather list. A caller keeps two
// and swaps them with Conn.Take.
type Batch struct {
	buf  []byte
	cuts []cut
	vec  [][]byte
	n    int
	// owned are pool's buffers that cuts point into; Reset gives them back.
	owned [][]byte
	pool  *Buffers
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
		b.pool.Put(o)
		b.owned[i] = nil
	}
	b.owned = b.owned[:0]
}

// Own makes the batch the owner of a buffer of pool's that it refers to.
func (b *Batch) Own(pool *Buffers, buf []byte) {
	b.pool = pool
	b.owned = append(b.owned, buf)
}

// Room adds n bytes for the caller to fill; what is in them is anything.
func (b *Batch) Room(n int) []byte {
	at := len(b.buf)
	if cap(b.buf)-at < n {
		b.buf = append(b.buf, make([]byte, n)...)
	}
	b.buf = b.buf[:at+n]
	b.n += n
	return b.buf[at:]
}

// Clear adds n zero bytes for the caller to fill.
func (b *Batch) Clear(n int) []byte {
	r := b.Room(n)
	clear(r)
	return r
}

// Shorten takes back the last n bytes of Room.
func (b *Batch) Shorten(n int) { b.buf, b.n = b.buf[:len(b.buf)-n], b.n-n }

// Refer adds d by reference: it must stay what it is until Reset.
func (b *Batch) Refer(d []byte) {
	if len(d) > 0 {
		b.cuts = append(b.cuts, cut{len(b.buf), d})
		b.n += len(d)
	}
}

// Tail is the last n bytes that were added, none of them by reference.
func (b *Batch) Tail(n int) []byte { return b.buf[len(b.buf)-n:] }

// Mark and Rollback undo what was added without references since.
func (b *Batch) Mark() Mark { return Mark{len(b.buf), b.n} }

// Mark is a place in a batch.
type Mark struct{ buf, n int }

// Rollback takes back what was added since m.
func (b *Batch) Rollback(m Mark) { b.buf, b.n = b.buf[:m.buf], m.n }

// Since is what was added since m, without what was added by reference.
func (b *Batch) Since(m Mark) []byte { return b.buf[m.buf:] }
