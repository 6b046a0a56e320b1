package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/tagset"
)

// S2: tags under exhaustion. Submitters take tags without limit and give them
// to a device in memory; its completer, one goroutine that is always running,
// gives them back. One operation is one tag's round.

const (
	s2Submitters = 12
	s2Small      = 64
	s2Large      = 2048
	// s2Batch is the most tags a submitter takes at once in the batched runs.
	s2Batch = 8
)

// allocator is one side of S2.
type allocator interface {
	// take fills in at least one tag and at most len(tags), and waits for it.
	take(w int, tags []int32) int
	// give puts tags back that submitter w had.
	give(w int, tags []int32)
	// leave says that submitter w takes no more.
	leave(w int)
	// free counts the free tags when nobody is active.
	free() int
	// bound is an exclusive upper bound of the tags.
	bound() int
}

// fakeDevice holds the tags that are in flight. Submitter w pushes to heads[w],
// by CAS; whoever finishes takes a whole list, by swap, so there is no ABA. A
// tag's slot belongs to whoever holds the tag: it is no atomic, so that the race
// detector sees a tag that two hold.
type fakeDevice struct {
	heads []flightHead
	slots []flightSlot
	bad   atomic.Int64
	// finished are the tags that somebody is giving back: one list per submitter,
	// and the last for the completer.
	finished [][]int32
}

// finishBatch is how many tags are given back at once.
const finishBatch = 64

type flightHead struct {
	top atomic.Int32 // tag + 1 of the newest
	_   [60]byte
}

type flightSlot struct {
	next   int32 // as top
	holder int32 // submitter + 1, 0: free
	_      [56]byte
}

func newFakeDevice(submitters, bound int) *fakeDevice {
	f := &fakeDevice{heads: make([]flightHead, submitters), slots: make([]flightSlot, bound)}
	for range submitters + 1 {
		f.finished = append(f.finished, make([]int32, finishBatch))
	}
	return f
}

// submit puts w's tags in flight.
func (f *fakeDevice) submit(w int, tags []int32) {
	first, last := int32(0), int32(0)
	for _, tag := range tags {
		s := &f.slots[tag]
		if s.holder != 0 {
			f.bad.Add(1)
			continue
		}
		s.holder, s.next = int32(w)+1, first
		first = tag + 1
		if last == 0 {
			last = first
		}
	}
	if first == 0 {
		return
	}
	top := &f.heads[w].top
	for {
		old := top.Load()
		f.slots[last-1].next = old
		if top.CompareAndSwap(old, first) {
			return
		}
	}
}

// reap is what submitter w does that finds no tag: it finishes what it has in
// flight itself, or else what another has. False: nothing is in flight.
func (f *fakeDevice) reap(w int, a allocator) bool { return f.finish(w, a, f.finished[w]) }

// finish takes what one submitter has in flight, w's if possible, and gives it
// back.
func (f *fakeDevice) finish(w int, a allocator, tags []int32) bool {
	for k := range f.heads {
		h := w + k
		if h >= len(f.heads) {
			h -= len(f.heads)
		}
		if f.heads[h].top.Load() == 0 {
			continue
		}
		if at := f.heads[h].top.Swap(0); at != 0 {
			f.giveAll(h, at, a, tags)
			return true
		}
	}
	return false
}

func (f *fakeDevice) giveAll(w int, at int32, a allocator, tags []int32) {
	n := 0
	for at != 0 {
		s := &f.slots[at-1]
		if s.holder != int32(w)+1 {
			f.bad.Add(1)
		}
		tags[n], at, s.holder = at-1, s.next, 0
		if n++; n == len(tags) {
			a.give(w, tags[:n])
			n = 0
		}
	}
	if n > 0 {
		a.give(w, tags[:n])
	}
}

// complete is the completer: it runs until stop.
func (f *fakeDevice) complete(a allocator, stop *atomic.Bool, done chan<- struct{}) {
	defer close(done)
	for w, tags := 0, f.finished[len(f.heads)]; !stop.Load(); w = (w + 1) % len(f.heads) {
		if !f.finish(w, a, tags) {
			runtime.Gosched()
		}
	}
}

// tagSide measures an allocator. build is given the device for those that reap.
func tagSide(name string, build func(f *fakeDevice, depth, submitters int) allocator, depth, submitters, batch int) side {
	return side{name: name, run: func(ctx context.Context, d time.Duration) (sample, error) {
		f := newFakeDevice(submitters, 64*(submitters+depth/64+64))
		a := build(f, depth, submitters)
		if a.bound() > len(f.slots) {
			panic("bench: BUG: more tags than slots")
		}
		var stop atomic.Bool
		done := make(chan struct{})
		go f.complete(a, &stop, done)
		workers := make([]worker, submitters)
		for w := range workers {
			workers[w] = tagLoop(f, a, w, batch)
		}
		_, s, err := drive(ctx, d, workers)
		stop.Store(true)
		<-done
		if err != nil {
			return nil, err
		}
		for f.reap(0, a) {
		}
		if bad, free := f.bad.Load(), a.free(); bad != 0 || free != depth {
			return nil, checkf("%s: %d tags were held twice, %d of %d are free at the end", name, bad, free, depth)
		}
		return s, nil
	}}
}

func tagLoop(f *fakeDevice, a allocator, w, batch int) worker {
	return func(stop *atomic.Bool) (ops int64, err error) {
		defer a.leave(w)
		tags := make([]int32, batch)
		for {
			n := a.take(w, tags)
			f.submit(w, tags[:n])
			ops += int64(n)
			if stop.Load() {
				return ops, nil
			}
		}
	}
}

// tagsetAlloc is ours: out of tags, a submitter finishes what is in flight.
type tagsetAlloc struct {
	set  *tagset.Set
	reap []func() bool // per submitter
}

func newTagset(f *fakeDevice, depth, submitters int) allocator {
	a := &tagsetAlloc{set: tagset.New(depth, submitters)}
	for w := range submitters {
		a.reap = append(a.reap, func() bool { return f.reap(w, a) })
	}
	return a
}

func (a *tagsetAlloc) take(w int, tags []int32) int {
	for {
		if n := a.set.GetOrReap(w, tags, a.reap[w]); n > 0 {
			return n
		}
		runtime.Gosched() // who holds the tags has not submitted them yet
	}
}
func (a *tagsetAlloc) give(_ int, tags []int32) { a.set.PutBatch(tags) }
func (a *tagsetAlloc) leave(int)                {}
func (a *tagsetAlloc) free() int                { return a.set.Free() }
func (a *tagsetAlloc) bound() int               { return a.set.Bound() }

// rivals are what S2 is measured against.
var rivals = []struct {
	name  string
	build func(f *fakeDevice, depth, submitters int) allocator
}{
	{"mutex+cond", newMutexCond},
	{"channel", newChannel},
	{"shared bitmap", newBitmap},
	{"cache with message purge", newPurge},
}

func s2Experiments() []experiment {
	var out []experiment
	for _, c := range []struct {
		depth, batch int
		goals        map[string]float64
	}{
		{s2Small, 1, map[string]float64{"mutex+cond": 1.5, "channel": 2}},
		{s2Large, 1, map[string]float64{"mutex+cond": 0.97, "channel": 0.97, "shared bitmap": 0.97, "cache with message purge": 0.97}},
		{s2Small, s2Batch, nil},
		{s2Large, s2Batch, nil},
	} {
		out = append(out, s2Experiment(c.depth, c.batch, c.goals))
	}
	return out
}

func s2Experiment(depth, batch int, goals map[string]float64) experiment {
	e := experiment{
		name:  fmt.Sprintf("depth %d, %d submitters, exhausted", depth, s2Submitters),
		turns: manyTurns,
		sides: []side{tagSide("tagset", newTagset, depth, s2Submitters, batch)},
	}
	if batch > 1 {
		e.name += fmt.Sprintf(", up to %d at once", batch)
	}
	for _, r := range rivals {
		e.sides = append(e.sides, tagSide(r.name, r.build, depth, s2Submitters, batch))
		c := claim{metric: opsPerSecond, base: r.name, goal: goals[r.name]}
		if r.name == "cache with message purge" {
			c.seed = map[int]string{s2Small: "1.84", s2Large: "0.97"}[depth]
		}
		e.claims = append(e.claims, c)
	}
	if batch > 1 {
		return e
	}
	// What self-reap alone does for a lock and for one bitmap; and the textbook.
	for _, r := range []struct {
		name  string
		build func(f *fakeDevice, depth, submitters int) allocator
	}{{"mutex, reaping too", newMutexReap}, {"shared bitmap, reaping too", newBitmapReap}} {
		e.sides = append(e.sides, tagSide(r.name, r.build, depth, s2Submitters, batch))
		e.claims = append(e.claims, claim{metric: opsPerSecond, base: r.name})
	}
	e.sides = append(e.sides, tagSide("textbook mutex+cond", newTextbookCond, depth, s2Submitters, batch))
	e.claims = append(e.claims, claim{name: "the baseline is no straw man", metric: opsPerSecond,
		ours: "mutex+cond", base: "textbook mutex+cond", goal: 0.95})
	return e
}

func s2Plot(ctx context.Context, p *plotter) error {
	return p.overWorkers(ctx, "s2-tags.svg", fmt.Sprintf("S2: tags, depth %d, exhausted", s2Small), func(n int) []side {
		sides := []side{tagSide("tagset", newTagset, s2Small, n, 1)}
		for _, r := range rivals {
			sides = append(sides, tagSide(r.name, r.build, s2Small, n, 1))
		}
		return sides
	})
}
