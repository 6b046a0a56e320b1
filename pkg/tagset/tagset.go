// Package tagset hands out small integers (tags) without locks.
//
// Free tags are set bits of 64-bit words, each on its own cache line. A caller
// passes its home (its lane's number): it looks in its home word first and
// steals from the others when that is empty, so callers with different homes
// do not meet while tags last.
package tagset

import (
	"math/bits"
	"sync/atomic"
)

type word struct {
	// free has a bit set for each free tag of this word. Written by CAS from
	// any goroutine; a stale read only fails the CAS.
	free atomic.Uint64
	_    [56]byte
}

// Set is a set of tags 0..Depth-1.
type Set struct {
	words []word
	depth int
}

// New makes a set with depth free tags, 1 <= depth <= 65536. The tags are
// spread over at least as many words as homes callers are expected.
func New(depth, homes int) *Set {
	per := 64
	if homes > 1 {
		per = min(64, max(1, depth/homes))
	}
	n := (depth + per - 1) / per
	s := &Set{words: make([]word, n), depth: depth}
	left := depth
	for i := range s.words {
		k := min(per, left)
		left -= k
		s.words[i].free.Store(^uint64(0) >> (64 - k))
	}
	return s
}

// Depth is the number of tags.
func (s *Set) Depth() int { return s.depth }

// Bound is an exclusive upper bound of the tags' values: the size of a table
// indexed by tag.
func (s *Set) Bound() int { return len(s.words) * 64 }

// Get takes a free tag, or returns -1 when there is none now. It never waits:
// a caller that holds unsubmitted tags must submit them before trying again.
func (s *Set) Get(home int) int {
	n := len(s.words)
	h := home % n
	for i := 0; i < n; i++ {
		w := &s.words[h]
		for v := w.free.Load(); v != 0; v = w.free.Load() {
			if w.free.CompareAndSwap(v, v&(v-1)) {
				return h<<6 | bits.TrailingZeros64(v)
			}
		}
		if h++; h == n {
			h = 0
		}
	}
	return -1
}

// Put gives a tag back. Giving back a free tag is a bug and panics.
func (s *Set) Put(tag int) {
	bit := uint64(1) << (tag & 63)
	if s.words[tag>>6].free.Or(bit)&bit != 0 {
		panic("tagset: BUG: tag put twice")
	}
}

// Free counts the free tags; exact only while nobody else is active.
func (s *Set) Free() int {
	n := 0
	for i := range s.words {
		n += bits.OnesCount64(s.words[i].free.Load())
	}
	return n
}
