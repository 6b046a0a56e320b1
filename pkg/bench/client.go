package bench

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/mpsc"
)

// submitter takes batches linked by Next; *datapath.Lane is one.
type submitter interface {
	Submit(first *blk.Request)
}

// client keeps a number of writes outstanding: whatever is answered goes out
// again, as one batch or one by one. The same for both sides of S3.
//
// The loop owns reqs that are not in flight. done is pushed to by whoever
// answers. asleep is set by the loop and taken back by who wakes it; it looks
// at done between the two, so no wake-up is lost. flying belongs to whoever
// holds the request: it is no atomic, so that the race detector sees a request
// that two hold.
type client struct {
	reqs   []blk.Request
	flying []bool // by slot: from Submit to Complete
	single bool
	done   mpsc.Queue[blk.Request, *blk.Request]
	_      [56]byte
	asleep atomic.Bool
	bad    atomic.Int64
	wake   chan struct{}
	out    int // outstanding; the loop's

	// prepare, if set, makes a request anew before it goes out, and answered looks
	// at one that came back, or was never out; both in the loop. Without, a request
	// is repeated.
	prepare  func(r *blk.Request)
	answered func(r *blk.Request) error
}

func newClient(lane, depth int, single bool, buf []byte) *client {
	c := &client{reqs: make([]blk.Request, depth), flying: make([]bool, depth), single: single, wake: make(chan struct{}, 1)}
	for i := range c.reqs {
		at := uint64(lane*depth+i) * requestSize
		c.reqs[i] = blk.Request{Op: blk.Write, Slot: uint32(i), Len: requestSize, Off: at, Cookie: ^at, Buf: buf, Owner: c}
	}
	return c
}

// Complete implements blk.Completer: it checks that the request was out, and
// is answered once, well, and with its cookie.
func (c *client) Complete(r *blk.Request) {
	if r.Status != blk.OK || r.Cookie != ^r.Off || !c.flying[r.Slot] {
		c.bad.Add(1)
		return
	}
	c.flying[r.Slot] = false
	c.done.Push(r)
}

// Flush implements blk.Completer.
func (c *client) Flush() {
	if c.asleep.Load() && c.asleep.Swap(false) {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// loop is the client's goroutine: until stop, then until everything is answered.
func (c *client) loop(to submitter) worker {
	return func(stop *atomic.Bool) (ops int64, err error) {
		for i := range c.reqs {
			c.done.Push(&c.reqs[i])
		}
		c.out = len(c.reqs)
		ops = -int64(c.out) // the first ones were no answers
		limit := time.NewTicker(settleTime)
		defer limit.Stop()
		for {
			r := c.done.Drain()
			if r == nil {
				if c.out == 0 {
					return ops, nil
				}
				if err := c.sleep(limit.C); err != nil {
					return ops, err
				}
				continue
			}
			n := 0
			for q := r; q != nil; q = q.Next {
				n++
				if c.answered != nil {
					if err := c.answered(q); err != nil {
						return ops, err
					}
				}
			}
			ops, c.out = ops+int64(n), c.out-n
			if stop.Load() {
				continue
			}
			c.out += n
			c.submit(to, r)
		}
	}
}

// sleep waits for an answer. Two ticks of limit without any are too long: a
// timer of its own would be a clock read per sleep.
func (c *client) sleep(limit <-chan time.Time) error {
	c.asleep.Store(true)
	for ticks := 0; c.done.Empty(); {
		select {
		case <-c.wake:
			c.asleep.Store(false)
			return nil
		case <-limit:
			if ticks++; ticks == 2 {
				return checkf("%d requests were not answered within %v", c.out, settleTime)
			}
		}
	}
	c.asleep.Store(false)
	return nil
}

func (c *client) submit(to submitter, r *blk.Request) {
	if c.prepare != nil {
		for q := r; q != nil; q = q.Next {
			c.prepare(q)
		}
	}
	if !c.single {
		for q := r; q != nil; q = q.Next {
			c.flying[q.Slot] = true
		}
		to.Submit(r)
		return
	}
	for r != nil {
		next := r.Next
		r.Next = nil
		c.flying[r.Slot] = true
		to.Submit(r)
		r = next
	}
}

// verify is called after the loop.
func (c *client) verify() error {
	left := 0
	for i := range c.flying {
		if c.flying[i] {
			left++
		}
	}
	if bad := c.bad.Load(); bad != 0 || left != 0 {
		return checkf("%d answers were errors, wrong or doubled, %d requests not answered", bad, left)
	}
	return nil
}

// load is what the clients of one run do.
type load struct {
	lanes, depth int // depth of each lane
	single       bool
}

// run drives a client per lane against what open returns.
func (l load) run(ctx context.Context, d time.Duration, open func(lane int) (submitter, error)) (sample, error) {
	buf := make([]byte, requestSize)
	clients, workers := make([]*client, l.lanes), make([]worker, l.lanes)
	for i := range clients {
		to, err := open(i)
		if err != nil {
			return nil, err
		}
		clients[i] = newClient(i, l.depth, l.single, buf)
		workers[i] = clients[i].loop(to)
	}
	_, s, err := drive(ctx, d, workers)
	errs := []error{err}
	for _, c := range clients {
		errs = append(errs, c.verify())
	}
	return s, errors.Join(errs...)
}
