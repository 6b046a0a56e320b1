package bench

import (
	"encoding/binary"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// price is what a command costs an array: it executes one after the other, each
// for command plus perKiB, and answers after delay more.
type price struct {
	command, perKiB, delay time.Duration
}

func (p price) of(bytes uint32) time.Duration {
	return p.command + p.perKiB*time.Duration(bytes)/1024
}

// array is a target behind several paths that is limited by commands. It checks
// that every block of a write carries its own place (see stamp).
//
// Its goroutine owns waiting and free; asleep is set by it and taken back by
// who kicks a path, and it looks at the queues between the two, so no wake-up
// is lost. It does not sleep while something is in execution: timers are too
// coarse for what a command costs.
type array struct {
	price   price
	base    time.Time
	paths   []*nullPath
	waiting []execution // oldest first; due only grows
	free    time.Duration
	touched []uint64 // by path: lanes with answers since its last batch end

	commands atomic.Int64
	bad      atomic.Int64
	asleep   atomic.Bool
	wake     chan struct{}
	stop     atomic.Bool
	done     chan struct{}
}

type execution struct {
	c    *blk.Command
	path int
	due  time.Duration
}

func newArray(pr price, paths []*nullPath) *array {
	a := &array{price: pr, base: time.Now(), paths: paths, touched: make([]uint64, len(paths)),
		wake: make(chan struct{}, 1), done: make(chan struct{})}
	for i, p := range paths {
		p.vectors = true
		p.reader = &port{array: a, first: i == 0}
	}
	return a
}

// port is the array's side of one path.
type port struct {
	array *array
	first bool
}

func (p *port) start(*nullPath) {
	if p.first {
		go p.array.run()
	}
}

func (p *port) take(*nullPath) { p.array.rouse() }

// halt ends the array with its first path: benchmarks close only what is idle.
func (p *port) halt() {
	if p.first {
		p.array.stop.Store(true)
		p.array.rouse()
		<-p.array.done
	}
}

func (a *array) rouse() {
	if a.asleep.Load() && a.asleep.Swap(false) {
		select {
		case a.wake <- struct{}{}:
		default:
		}
	}
}

func (a *array) run() {
	defer close(a.done)
	for !a.stop.Load() {
		a.accept()
		if len(a.waiting) == 0 {
			a.sleep()
			continue
		}
		if a.answer() == 0 {
			runtime.Gosched()
		}
	}
}

func (a *array) sleep() {
	a.asleep.Store(true)
	if a.accept() == 0 && !a.stop.Load() {
		<-a.wake
	}
	a.asleep.Store(false)
}

// accept begins with what came in.
func (a *array) accept() (n int) {
	now := time.Since(a.base)
	for i, p := range a.paths {
		for k := range p.queues {
			if p.queues[k].Empty() {
				continue
			}
			for c := p.queues[k].Drain(); c != nil; n++ {
				next := c.Next
				c.Next = nil
				a.check(c)
				a.free = max(a.free, now) + a.price.of(c.Len)
				a.waiting = append(a.waiting, execution{c, i, a.free + a.price.delay})
				c = next
			}
		}
	}
	return n
}

// answer answers what is done.
func (a *array) answer() (n int) {
	now := time.Since(a.base)
	for _, e := range a.waiting {
		if e.due > now {
			break
		}
		p := a.paths[e.path]
		p.queues[e.c.Lane].answered.Add(1)
		a.touched[e.path] |= p.answer(e.c)
		n++
	}
	a.waiting = a.waiting[:copy(a.waiting, a.waiting[n:])]
	a.commands.Add(int64(n))
	for i := range a.touched {
		if lanes := a.touched[i]; lanes != 0 {
			a.touched[i] = 0
			a.paths[i].sink.BatchEnd(lanes)
		}
	}
	return n
}

// stamp marks a block with its place.
func stamp(buf []byte, off uint64) { binary.LittleEndian.PutUint64(buf, off+1) }

func stamped(buf []byte, off uint64) bool { return binary.LittleEndian.Uint64(buf) == off+1 }

func (a *array) check(c *blk.Command) {
	for at := uint32(0); at < c.Len; at += requestSize {
		if p := c.Piece(at); c.Op != blk.Write || len(p) < requestSize || !stamped(p, c.Off+uint64(at)) {
			a.bad.Add(1)
		}
	}
}
