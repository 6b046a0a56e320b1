package bufpool

import "sync"

// Sizes of an Elastic.
const (
	// ElasticSmall holds one small I/O with its header.
	ElasticSmall = 8 << 10
	// ElasticLarge is what one batched receive may bring, bytes.
	ElasticLarge = 256 << 10
	// elasticCalm is how many receives that the small buffer would have held make
	// an Elastic small again.
	elasticCalm = 64
)

// large are the large buffers that nobody uses now.
var large = sync.Pool{New: func() any { return new([ElasticLarge]byte) }}

// Elastic is a receive buffer: small while little comes in, as on thousands of
// idle connections, large while much does. Large ones come from a pool that all
// share. For one goroutine; the zero value is ready.
type Elastic struct {
	small  []byte
	large  *[ElasticLarge]byte
	hungry bool
	calm   int
}

// Next returns the buffer for the next receive, with held, which may lie in the
// one before, at its front. It is valid until the call after it.
func (e *Elastic) Next(held []byte) []byte {
	old := e.large
	switch {
	case e.large == nil && e.hungry:
		e.large, e.hungry, e.calm = large.Get().(*[ElasticLarge]byte), false, 0
	case e.large != nil && e.calm >= elasticCalm && len(held) <= ElasticSmall/2:
		e.large = nil
	}
	if e.large != nil {
		copy(e.large[:], held)
		return e.large[:]
	}
	if e.small == nil {
		e.small = make([]byte, ElasticSmall)
	}
	copy(e.small, held)
	if old != nil {
		large.Put(old) // after the copy: held may lie in it
	}
	return e.small
}

// Filled notes that a receive filled the buffer up to end, bytes.
func (e *Elastic) Filled(end int) {
	switch {
	case e.large == nil:
		e.hungry = end >= ElasticSmall
	case end > ElasticSmall/2:
		e.calm = 0
	default:
		e.calm++
	}
}

// Close gives a large buffer back. The last buffer is not to be used any more.
func (e *Elastic) Close() {
	if e.large != nil {
		large.Put(e.large)
		e.large = nil
	}
}
