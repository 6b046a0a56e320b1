package sim

import (
	"container/heap"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// world is the clock and what happens by itself: arriving bytes, target timers,
// faults. One goroutine plays the events in the order of their time, and of
// their making where that is equal.
//
// mu guards the network, the target and all dice: all of a world that is not the
// product's or a client's. Nobody is durably blocked while holding it.
type world struct {
	mu     sync.Mutex
	dice   dice // of the script's steps; links have their own
	seed   uint64
	events events
	seq    uint64
	wake   chan struct{} // capacity 1: an earlier event than the goroutine knows
	stop   chan struct{}
	done   chan struct{}
	haste  bool
	yields bool // calls of the product give up the processor at random
}

type event struct {
	at  time.Time
	seq uint64
	do  func()
}

type events []*event

func (e events) Len() int      { return len(e) }
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e events) Less(i, j int) bool {
	if e[i].at.Equal(e[j].at) {
		return e[i].seq < e[j].seq
	}
	return e[i].at.Before(e[j].at)
}

// Push implements heap.Interface.
func (e *events) Push(x any) { *e = append(*e, x.(*event)) }

// Pop implements heap.Interface.
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

func newWorld(seed uint64) *world {
	return &world{seed: seed, dice: newDice(seed, 0x77), wake: make(chan struct{}, 1),
		stop: make(chan struct{}), done: make(chan struct{})}
}

// at plans do, which is called with mu held. Under mu.
func (w *world) at(t time.Time, do func()) {
	w.seq++
	e := &event{t, w.seq, do}
	heap.Push(&w.events, e)
	if w.events[0] == e {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

func (w *world) after(d time.Duration, do func()) { w.at(time.Now().Add(d), do) }

// loop plays events until end.
func (w *world) loop() {
	defer close(w.done)
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		t.Reset(w.play())
		select {
		case <-t.C:
		case <-w.wake:
		case <-w.stop:
			return
		}
	}
}

// play does what is due and returns how long nothing is.
func (w *world) play() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		if len(w.events) == 0 {
			return time.Hour
		}
		if d := time.Until(w.events[0].at); d > 0 {
			return d
		}
		heap.Pop(&w.events).(*event).do()
	}
}

func (w *world) end() {
	close(w.stop)
	<-w.done
}

// under calls f with mu held.
func (w *world) under(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// yield lets others run in the middle of a call of the product's, once in a
// while. Under mu, which it gives up.
func (w *world) yield(d dice) {
	if !w.yields {
		return
	}
	most := 4
	if w.haste {
		most = 12
	}
	n := d.IntN(most)
	if n == 0 {
		return
	}
	w.mu.Unlock()
	for range n {
		runtime.Gosched()
	}
	w.mu.Lock()
}

// dice are a source of chance. Each direction of each link has its own, so that
// what one draws does not depend on when another did. Under world.mu.
type dice struct{ *rand.Rand }

func newDice(seed, use uint64) dice { return dice{rand.New(rand.NewPCG(seed, use))} }

// chance is true in one of n cases.
func (d dice) chance(n int) bool { return d.IntN(n) == 0 }

// upTo is a random duration below limit.
func (d dice) upTo(limit time.Duration) time.Duration {
	if limit <= 0 {
		return 0
	}
	return time.Duration(d.Int64N(int64(limit)))
}
