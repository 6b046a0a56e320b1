package serve

import "math/bits"

const (
	minShift = 12 // the smallest buffer is 4 KiB
	maxClass = 10 // the largest 4 MiB: MaxTransfer
)

// Buffers are the buffers of a machine's tasks, kept for reuse. Under the
// machine's lock.
type Buffers struct {
	free [maxClass + 1][][]byte
	idle int // bytes in free
	held int // bytes handed out
}

// Get returns a buffer of n bytes, 0..MaxTransfer; false when too much is held.
func (p *Buffers) Get(n int) (buf []byte, ok bool) {
	if n > 1<<(minShift+maxClass) || p.held+n > maxBuffered {
		return nil, false
	}
	class := 0
	if n > 1<<minShift {
		class = bits.Len(uint(n-1)) - minShift
	}
	size := 1 << (minShift + class)
	p.held += size
	if k := len(p.free[class]); k > 0 {
		buf = p.free[class][k-1][:n]
		p.free[class] = p.free[class][:k-1]
		p.idle -= size
		return buf, true
	}
	return make([]byte, n, size), true
}

// Put takes a buffer back.
func (p *Buffers) Put(buf []byte) {
	size := cap(buf)
	p.held -= size
	if p.idle+size <= maxIdleBuffers {
		class := bits.Len(uint(size)) - 1 - minShift
		p.free[class] = append(p.free[class], buf[:0])
		p.idle += size
	}
}

// Held is how many bytes are handed out.
func (p *Buffers) Held() int { return p.held }
