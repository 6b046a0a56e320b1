package wire

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/poll"
)

// Batch is what goes out with one system call, being made and being sent. All of
// it belongs to the holder of the sender flag.
type Batch struct {
	// arena, iov and refs lie in scratch, which is borrowed while there is
	// something to send.
	scratch *scratch
	arena   []byte
	used    int
	iov     []unix.Iovec
	run     bool // the last iovec ends at arena[used]
	bytes   int
	pend    []unix.Iovec // what of iov is not sent yet
	// refs are the payloads of the batch that go by reference, in order.
	refs []ref
	head int
	sent int

	// overhead is the most arena bytes of one PDU besides copied payload.
	overhead int
	// sum continues a digest over payload; nil: there is none.
	sum func(uint32, []byte) uint32
}

// ref keeps a command's payload until the batch is sent up to end, bytes.
type ref struct {
	cmd *blk.Command
	end int
}

// scratch is the room of one batch. Thousands of connections share as many as
// there are senders at a time.
type scratch struct {
	arena [sendArena]byte
	iov   [batchIovecs]unix.Iovec
	refs  [batchIovecs]ref
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// begin empties the batch, and takes a scratch unless there is one already.
func (b *Batch) begin() {
	if b.scratch == nil {
		s := scratches.Get().(*scratch)
		b.scratch, b.arena, b.iov, b.refs = s, s.arena[:], s.iov[:0], s.refs[:0]
	}
	clear(b.iov) // a stale pointer to unmapped memory must not stay
	b.iov, b.refs = b.iov[:0], b.refs[:0]
	b.used, b.bytes, b.head, b.sent, b.run = 0, 0, 0, 0, false
}

// end is what there is to send; nil gives the scratch back.
func (b *Batch) end() []unix.Iovec {
	if b.pend = b.iov; len(b.pend) > 0 {
		return b.pend
	}
	scratches.Put(b.scratch)
	b.scratch, b.arena, b.iov, b.refs, b.pend = nil, nil, nil, nil, nil
	return nil
}

// Room reports whether one more PDU with up to n payload bytes, in so many
// pieces, fits the batch.
func (b *Batch) Room(n, pieces int) bool {
	need := b.overhead
	if n <= CopyLimit && pieces == 0 {
		need += n
	}
	return len(b.arena)-b.used >= need && len(b.iov)+pieces+3 <= cap(b.iov) && len(b.refs) < cap(b.refs) && b.bytes < batchBytes
}

// Next is where the next n arena bytes go: encode there, then Put.
func (b *Batch) Next(n int) []byte { return b.arena[b.used : b.used+n] }

// Put adds the next n arena bytes to the batch.
func (b *Batch) Put(n int) {
	if n == 0 {
		return
	}
	if b.run {
		last := &b.iov[len(b.iov)-1]
		last.SetLen(int(last.Len) + n)
	} else {
		b.iov = append(b.iov, poll.Iovec(b.arena[b.used:b.used+n]))
		b.run = true
	}
	b.used += n
	b.bytes += n
}

// Payload adds n bytes of k's payload from off, and returns their digest. A
// large one goes by reference, and is kept until it is sent.
func (b *Batch) Payload(k *Task, off, n int) (sum uint32) {
	if k.Out == nil && n > 0 {
		return b.pieces(k.Cmd, off, n)
	}
	return b.Bytes(k.Out[off:off+n], k.Cmd)
}

// Bytes is Payload for bytes that c keeps.
func (b *Batch) Bytes(p []byte, c *blk.Command) (sum uint32) {
	if b.sum != nil {
		sum = b.sum(0, p)
	}
	if n := len(p); n <= CopyLimit {
		copy(b.arena[b.used:], p)
		b.Put(n)
	} else {
		b.iov = append(b.iov, poll.Iovec(p))
		b.refer(n, c)
	}
	return sum
}

// pieces is Payload in pieces, each by reference.
func (b *Batch) pieces(c *blk.Command, off, n int) (sum uint32) {
	for end := off + n; off < end; {
		p := c.Piece(uint32(off))
		p = p[:min(len(p), end-off)]
		if b.sum != nil {
			sum = b.sum(sum, p)
		}
		b.iov = append(b.iov, poll.Iovec(p))
		off += len(p)
	}
	b.refer(n, c)
	return sum
}

// refer notes that the last n bytes of the batch are c's payload.
func (b *Batch) refer(n int, c *blk.Command) {
	b.bytes += n
	b.run = false
	c.Tx.Add(1)
	b.refs = append(b.refs, ref{c, b.bytes})
}
