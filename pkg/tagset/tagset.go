// Package tagset hands out small integers (tags) without locks.
//
// Free tags are set bits of 64-bit words, each on its own cache line. A caller
// passes its home (its lane's number): it looks in its home word first and
// steals from the others when that is empty, so callers with different homes
// do not meet while tags last.
package tagset

import (
	"math/bits"
	"runtime"
	"sync/atomic"
)

type word struct {
	// free has a bit set for each free tag of this word. Written by CAS from
	// any goroutine; a stale read only fails the CAS.
	free atomic.Uint64
	_    [56]byte
}

// Set is a set of tags.
type Set struct {
	words  []word
	depth  int
	stride int // words between two homes
}

// New makes a set with depth free tags, 1 <= depth <= 65536, for callers with
// that many homes. There are no more homes than twice the CPUs: only callers
// that run at the same time can meet, and a larger word has more tags for one
// swap.
func New(depth, homes int) *Set {
	return newSet(depth, min(homes, 2*runtime.GOMAXPROCS(0)))
}

func newSet(depth, homes int) *Set {
	per := 64
	if homes > 1 {
		per = min(64, max(1, depth/homes))
	}
	n := (depth + per - 1) / per
	s := &Set{words: make([]word, n), depth: depth, stride: max(1, n/max(1, homes))}
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
	h := s.home(home)
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

// GetBatch takes up to len(tags) free tags and returns how many: what one word
// has, by one swap, from the home word or the first other that has any. Like
// Get it never waits.
func (s *Set) GetBatch(home int, tags []int32) int {
	n := len(s.words)
	h := s.home(home)
	for i := 0; i < n; i++ {
		if k := s.takeFrom(h, tags); k > 0 {
			return k
		}
		if h++; h == n {
			h = 0
		}
	}
	return 0
}

// takeFrom takes up to len(tags) tags of word h by one swap.
func (s *Set) takeFrom(h int, tags []int32) int {
	w := &s.words[h]
	for v := w.free.Load(); v != 0; v = w.free.Load() {
		rest := v
		for k := 0; k < len(tags) && rest != 0; k++ {
			rest &= rest - 1
		}
		if w.free.CompareAndSwap(v, rest) {
			return spread(v&^rest, h, tags)
		}
	}
	return 0
}

// GetOrReap takes tags as GetBatch does, but when the home word is empty it
// first calls reap, which looks for finished work of the caller's and puts its
// tags back: a caller out of tags makes its own instead of waiting for somebody
// to be scheduled, and they are at home. Only then does it steal. 0: reap found
// nothing, and no tag is free.
func (s *Set) GetOrReap(home int, tags []int32, reap func() bool) int {
	h := s.home(home)
	for {
		if n := s.takeFrom(h, tags); n > 0 {
			return n
		}
		if reap() {
			continue
		}
		return s.GetBatch(home, tags)
	}
}

// spread writes the tags of the set bits of v in word h.
func spread(v uint64, h int, tags []int32) int {
	k := 0
	for ; v != 0; v &= v - 1 {
		tags[k] = int32(h<<6 | bits.TrailingZeros64(v))
		k++
	}
	return k
}

// home is the word where a caller looks first. Homes are spread, so that a
// caller that needs more than its word finds words that are nobody's home.
func (s *Set) home(home int) int {
	h := home * s.stride
	if h >= len(s.words) {
		h %= len(s.words)
	}
	return h
}

// PutBatch gives tags back; neighbours of one word by one swap.
func (s *Set) PutBatch(tags []int32) {
	for i := 0; i < len(tags); {
		h, v := tags[i]>>6, uint64(0)
		for ; i < len(tags) && tags[i]>>6 == h; i++ {
			bit := uint64(1) << (tags[i] & 63)
			if v&bit != 0 {
				panic("tagset: BUG: tag put twice")
			}
			v |= bit
		}
		if (s.words[h].free.Add(v)-v)&v != 0 {
			panic("tagset: BUG: tag put twice")
		}
	}
}

// Put gives a tag back. Giving back a free tag is a bug and panics.
func (s *Set) Put(tag int) {
	bit := uint64(1) << (tag & 63)
	// The bit is clear, so adding sets it, and by one instruction: Or with its
	// old value is a loop.
	if (s.words[tag>>6].free.Add(bit)-bit)&bit != 0 {
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
