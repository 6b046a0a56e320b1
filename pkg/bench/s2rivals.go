package bench

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
)

// mutexCond is a free list under a mutex; who finds it empty waits for a
// condition. reap, when given, is tried instead of waiting.
type mutexCond struct {
	mu      sync.Mutex
	cond    *sync.Cond
	list    []int32
	depth   int
	waiters int
	text    bool // signal always, tag by tag
	dev     *fakeDevice
}

func newMutexCond(_ *fakeDevice, depth, _ int) allocator {
	a := &mutexCond{depth: depth}
	a.cond = sync.NewCond(&a.mu)
	for i := range depth {
		a.list = append(a.list, int32(i))
	}
	return a
}

func newTextbookCond(f *fakeDevice, depth, submitters int) allocator {
	a := newMutexCond(f, depth, submitters).(*mutexCond)
	a.text = true
	return a
}

func newMutexReap(f *fakeDevice, depth, submitters int) allocator {
	a := newMutexCond(f, depth, submitters).(*mutexCond)
	a.dev = f
	return a
}

func (a *mutexCond) take(w int, tags []int32) int {
	a.mu.Lock()
	for len(a.list) == 0 {
		if a.dev == nil {
			a.waiters++
			a.cond.Wait()
			a.waiters--
			continue
		}
		a.mu.Unlock()
		if !a.dev.reap(w, a) {
			runtime.Gosched()
		}
		a.mu.Lock()
	}
	left := max(0, len(a.list)-len(tags))
	n := copy(tags, a.list[left:])
	a.list = a.list[:left]
	a.mu.Unlock()
	return n
}

func (a *mutexCond) give(_ int, tags []int32) {
	if a.text {
		for _, t := range tags {
			a.mu.Lock()
			a.list = append(a.list, t)
			a.mu.Unlock()
			a.cond.Signal()
		}
		return
	}
	a.mu.Lock()
	a.list = append(a.list, tags...)
	wake := min(a.waiters, len(tags))
	a.mu.Unlock()
	for range wake {
		a.cond.Signal()
	}
}

func (a *mutexCond) leave(int)  {}
func (a *mutexCond) free() int  { return len(a.list) }
func (a *mutexCond) bound() int { return a.depth }

// channelAlloc keeps the free tags in a buffered channel.
type channelAlloc struct{ tags chan int32 }

func newChannel(_ *fakeDevice, depth, _ int) allocator {
	a := &channelAlloc{tags: make(chan int32, depth)}
	for i := range depth {
		a.tags <- int32(i)
	}
	return a
}

func (a *channelAlloc) take(_ int, tags []int32) int {
	tags[0] = <-a.tags
	for n := 1; n < len(tags); n++ {
		select {
		case tags[n] = <-a.tags:
		default:
			return n
		}
	}
	return len(tags)
}

func (a *channelAlloc) give(_ int, tags []int32) {
	for _, t := range tags {
		a.tags <- t
	}
}

func (a *channelAlloc) leave(int)  {}
func (a *channelAlloc) free() int  { return len(a.tags) }
func (a *channelAlloc) bound() int { return cap(a.tags) }

// bitmapAlloc is one bitmap for all, words side by side; each submitter starts
// at a place of its own, and yields when it finds nothing.
type bitmapAlloc struct {
	words []atomic.Uint64
	start []int
	depth int
	dev   *fakeDevice // reaped instead of yielding, when given
}

func newBitmap(_ *fakeDevice, depth, submitters int) allocator {
	a := &bitmapAlloc{words: make([]atomic.Uint64, (depth+63)/64), depth: depth}
	for i := range a.words {
		a.words[i].Store(^uint64(0) >> (64 - min(64, depth-64*i)))
	}
	for w := range submitters {
		a.start = append(a.start, w*len(a.words)/submitters)
	}
	return a
}

func newBitmapReap(f *fakeDevice, depth, submitters int) allocator {
	a := newBitmap(f, depth, submitters).(*bitmapAlloc)
	a.dev = f
	return a
}

func (a *bitmapAlloc) take(w int, tags []int32) int {
	for {
		for k := range a.words {
			h := a.start[w] + k
			if h >= len(a.words) {
				h -= len(a.words)
			}
			if n := a.takeFrom(h, tags); n > 0 {
				return n
			}
		}
		if a.dev == nil || !a.dev.reap(w, a) {
			runtime.Gosched()
		}
	}
}

func (a *bitmapAlloc) takeFrom(h int, tags []int32) int {
	for v := a.words[h].Load(); v != 0; v = a.words[h].Load() {
		rest, n := v, 0
		for ; n < len(tags) && rest != 0; n++ {
			tags[n] = int32(h<<6 | bits.TrailingZeros64(rest))
			rest &= rest - 1
		}
		if a.words[h].CompareAndSwap(v, rest) {
			return n
		}
	}
	return 0
}

func (a *bitmapAlloc) give(_ int, tags []int32) {
	for i := 0; i < len(tags); {
		h, v := tags[i]>>6, uint64(0)
		for ; i < len(tags) && tags[i]>>6 == h; i++ {
			v |= 1 << (tags[i] & 63)
		}
		a.words[h].Or(v)
	}
}

func (a *bitmapAlloc) leave(int) {}
func (a *bitmapAlloc) free() (n int) {
	for i := range a.words {
		n += bits.OnesCount64(a.words[i].Load())
	}
	return n
}
func (a *bitmapAlloc) bound() int { return 64 * len(a.words) }

// purgeAlloc is the design that percpu-ida replaced: each submitter has a cache
// of its own, a pool behind it is refilled from in batches, and who finds both
// empty sends every other a message to give up its cache, and waits for all of
// them: the interrupt to other CPUs.
type purgeAlloc struct {
	mu    sync.Mutex
	pool  []int32
	many  atomic.Int64 // tags in pool
	next  []int32      // of the lists of freed tags, by tag
	subs  []purgeSub
	depth int
}

// purgeSub: cache belongs to the submitter. freed is pushed to by whoever
// finishes, taken whole by the submitter, and by anybody once it is gone. asked
// is set by who purges and cleared by the submitter.
type purgeSub struct {
	cache []int32
	_     [40]byte
	freed atomic.Int32 // tag + 1
	asked atomic.Bool
	gone  atomic.Bool
	_     [56]byte
}

// purgeRefill is how many tags a cache takes from the pool at once.
const purgeRefill = 4

func newPurge(_ *fakeDevice, depth, submitters int) allocator {
	a := &purgeAlloc{next: make([]int32, depth), subs: make([]purgeSub, submitters), depth: depth}
	for i := range a.subs {
		a.subs[i].cache = make([]int32, 0, depth)
	}
	for i := range depth {
		a.pool = append(a.pool, int32(i))
	}
	a.many.Store(int64(depth))
	return a
}

func (a *purgeAlloc) take(w int, tags []int32) int {
	s := &a.subs[w]
	for {
		if s.asked.Load() {
			a.giveUp(s)
		}
		if len(s.cache) == 0 {
			s.cache = a.drain(s, s.cache)
		}
		if len(s.cache) == 0 {
			a.refill(s, max(purgeRefill, len(tags)))
		}
		if k := len(s.cache); k > 0 {
			n := min(k, len(tags))
			copy(tags, s.cache[k-n:])
			s.cache = s.cache[:k-n]
			return n
		}
		a.purge(w)
	}
}

// drain appends the submitter's freed tags to list.
func (a *purgeAlloc) drain(s *purgeSub, list []int32) []int32 {
	if s.freed.Load() == 0 {
		return list
	}
	for at := s.freed.Swap(0); at != 0; at = a.next[at-1] {
		list = append(list, at-1)
	}
	return list
}

func (a *purgeAlloc) refill(s *purgeSub, most int) {
	if a.many.Load() == 0 {
		return
	}
	a.mu.Lock()
	left := max(0, len(a.pool)-most)
	s.cache = append(s.cache, a.pool[left:]...)
	a.pool = a.pool[:left]
	a.many.Store(int64(left))
	a.mu.Unlock()
}

// giveUp answers the message: everything goes to the pool.
func (a *purgeAlloc) giveUp(s *purgeSub) {
	s.cache = a.drain(s, s.cache)
	a.toPool(s.cache)
	s.cache = s.cache[:0]
	s.asked.Store(false)
}

func (a *purgeAlloc) toPool(tags []int32) {
	if len(tags) == 0 {
		return
	}
	a.mu.Lock()
	a.pool = append(a.pool, tags...)
	a.many.Store(int64(len(a.pool)))
	a.mu.Unlock()
}

// purge sends the message to all others and waits for their answers, answering
// theirs meanwhile.
func (a *purgeAlloc) purge(w int) {
	s := &a.subs[w]
	for i := range a.subs {
		if o := &a.subs[i]; o != s && !o.gone.Load() {
			o.asked.Store(true)
		}
	}
	for waiting := true; waiting; {
		waiting = false
		for i := range a.subs {
			o := &a.subs[i]
			if o == s {
				continue
			}
			if o.gone.Load() {
				a.toPool(a.drain(o, nil))
				continue
			}
			waiting = waiting || o.asked.Load()
		}
		if s.asked.Load() {
			a.giveUp(s)
		}
		if waiting {
			runtime.Gosched()
		}
	}
}

func (a *purgeAlloc) give(w int, tags []int32) {
	s := &a.subs[w]
	for i := range tags[1:] {
		a.next[tags[i]] = tags[i+1] + 1
	}
	for {
		old := s.freed.Load()
		a.next[tags[len(tags)-1]] = old
		if s.freed.CompareAndSwap(old, tags[0]+1) {
			return
		}
	}
}

func (a *purgeAlloc) leave(w int) {
	s := &a.subs[w]
	a.giveUp(s)
	s.gone.Store(true)
}

func (a *purgeAlloc) free() int {
	n := len(a.pool)
	for i := range a.subs {
		a.subs[i].cache = a.drain(&a.subs[i], a.subs[i].cache)
		n += len(a.subs[i].cache)
	}
	return n
}
func (a *purgeAlloc) bound() int { return a.depth }
