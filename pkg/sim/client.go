package sim

import (
	"cmp"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
)

// client keeps random requests in flight on one connection, and after a
// restart, or on a new connection, sends again what was not answered.
// Everything but run is under oracle.mu.
type client struct {
	o     *oracle
	id    int
	setup *Setup
	rng   *rand.Rand
	cond  sync.Cond
	conn  *conn
	conns []*conn // of the process that lives, ended ones too
	bufs  map[int][][]byte

	next     *process // to connect to
	lost     []*op    // not answered on the connection before
	draining bool     // wait until all is answered, now and then
	budget   int      // how many requests it may still ask; negative: any number
	quit     bool
	think    time.Duration // mean pause between batches
	last     op            // what a stream goes on from
	done     chan struct{}
}

// conn is one connection: a lane, and what is in flight on it. It is the Owner
// of its requests, and outlives its end until all of them came back (I2).
type conn struct {
	c      *client
	lane   nbd.Lane
	dead   bool // its client has left it
	left   bool // and taken with it what was in flight
	killed bool // its process is gone: what it still says is nobody's
	flying [slots]*flight
	free   []uint32
	out    int
}

// flight is one sending of a request.
type flight struct {
	op  *op
	req *blk.Request
}

func newClient(o *oracle, id int, setup *Setup) *client {
	c := &client{o: o, id: id, setup: setup, rng: rand.New(rand.NewPCG(setup.Seed, 0x1000+uint64(id))),
		bufs: map[int][][]byte{}, think: setup.Pause, budget: -1, done: make(chan struct{})}
	c.cond.L = &o.mu
	return c
}

// Flush implements blk.Completer.
func (n *conn) Flush() {}

// Complete implements blk.Completer.
func (n *conn) Complete(r *blk.Request) {
	o := n.c.o
	o.mu.Lock()
	twist := o.rng.IntN(4)
	n.complete(r)
	o.mu.Unlock()
	if n.c.setup.Yields {
		for range twist - 1 {
			runtime.Gosched()
		}
	}
}

func (n *conn) complete(r *blk.Request) {
	if n.killed {
		return
	}
	o := n.c.o
	f := n.flying[r.Slot]
	if f == nil || f.req != r {
		o.violate("a %v of %d bytes at %d was answered on connection of client %d where it is not in flight: twice, or on the wrong lane (I2)",
			r.Op, r.Len, r.Off, n.c.id)
		return
	}
	n.flying[r.Slot] = nil
	n.free = append(n.free, r.Slot)
	n.out--
	if !n.dead {
		o.answer(f.op, r.Status, r.Buf)
	}
	n.c.giveBack(r)
	n.c.cond.Broadcast()
}

// giveBack scribbles over a buffer: whoever still looks at it is found out.
func (c *client) giveBack(r *blk.Request) {
	if r.Buf != nil {
		scrawl(r.Buf)
		c.bufs[len(r.Buf)] = append(c.bufs[len(r.Buf)], r.Buf)
	}
	r.Buf = nil
}

func (c *client) buffer(n int) []byte {
	if l := c.bufs[n]; len(l) > 0 {
		i := c.rng.IntN(len(l))
		b := l[i]
		c.bufs[n] = slices.Delete(l, i, i+1)
		if !scribbled(b) {
			c.o.violate("a buffer of client %d was written to after its request was answered", c.id)
		}
		return b
	}
	b := make([]byte, n)
	scrawl(b)
	return b
}

// run is the client's goroutine.
func (c *client) run() {
	defer close(c.done)
	for {
		c.o.mu.Lock()
		for c.waits() {
			c.cond.Wait()
		}
		switch p := c.next; {
		case c.quit:
			c.o.mu.Unlock()
			return
		case p != nil:
			c.next = nil
			c.o.mu.Unlock()
			c.connect(p)
		default:
			first, lane := c.batch(), c.conn.lane
			c.o.mu.Unlock()
			lane.Submit(first)
			c.pause()
		}
	}
}

// waits: nothing to do for the client's goroutine.
func (c *client) waits() bool {
	if c.quit || c.next != nil {
		return false
	}
	if c.conn == nil || c.conn.dead || c.budget == 0 {
		return true
	}
	if c.draining = c.draining && c.conn.out > 0; c.draining {
		return true
	}
	return c.conn.out >= c.setup.Flight
}

func (c *client) pause() {
	c.o.mu.Lock()
	d := time.Duration(c.rng.ExpFloat64() * float64(c.think))
	c.draining = c.rng.IntN(12) == 0
	c.o.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
}

// batch makes one to some requests, linked.
func (c *client) batch() *blk.Request {
	n := 1
	if c.rng.IntN(3) == 0 {
		n += c.rng.IntN(4)
	}
	n = min(n, c.setup.Flight-c.conn.out)
	if c.budget > 0 {
		n = min(n, c.budget)
		c.budget -= n
	}
	var first, last *blk.Request
	for range n {
		r := c.conn.launch(c.o.ask(c.draw()))
		if first == nil {
			first = r
		} else {
			last.Next = r
		}
		last = r
	}
	return first
}

// launch puts a request in flight on the connection.
func (n *conn) launch(p *op) *blk.Request {
	i := n.c.rng.IntN(len(n.free))
	slot := n.free[i]
	n.free = slices.Delete(n.free, i, i+1)
	r := &blk.Request{Op: p.kind, Flags: p.flags, Slot: slot, Off: p.off, Len: p.len, Owner: n, Cookie: p.n}
	if p.kind == blk.Read || p.kind == blk.Write {
		r.Buf = n.c.buffer(int(p.len))
		if p.kind == blk.Write {
			fill(r.Buf, n.c.o.bs, p.off/uint64(n.c.o.bs), p.v)
		}
	}
	n.flying[slot] = &flight{p, r}
	n.out++
	return r
}

// connect opens a lane, after leaving the one before.
func (c *client) connect(p *process) {
	if old := c.leave(); old != nil {
		old.Close()
	}
	lane, err := p.dev.OpenLane(slots)
	if err != nil {
		c.o.mu.Lock()
		defer c.o.mu.Unlock()
		if !p.dead {
			c.o.violate("client %d finds no lane: %v", c.id, err)
		}
		return
	}
	if first := c.enter(p, lane); first != nil {
		lane.Submit(first)
	}
}

// leave abandons the connection there is; it must be closed if it is returned.
func (c *client) leave() nbd.Lane {
	c.o.mu.Lock()
	defer c.o.mu.Unlock()
	n := c.conn
	if n == nil || n.left {
		return nil
	}
	n.dead, n.left = true, true
	for _, f := range n.flying {
		if f != nil {
			c.lost = append(c.lost, f.op)
		}
	}
	slices.SortFunc(c.lost, func(a, b *op) int { return cmp.Compare(a.n, b.n) })
	if n.killed {
		return nil
	}
	return n.lane
}

// enter begins a new connection with what is to be sent again.
func (c *client) enter(p *process, lane nbd.Lane) (first *blk.Request) {
	c.o.mu.Lock()
	defer c.o.mu.Unlock()
	if p.dead {
		return nil // killed meanwhile: the next process is to come
	}
	c.conn = &conn{c: c, lane: lane}
	c.conns = append(c.conns, c.conn)
	for i := range uint32(slots) {
		c.conn.free = append(c.conn.free, i)
	}
	var last *blk.Request
	for _, p := range c.lost {
		if !c.setup.Replays {
			c.o.unknown(p)
			continue
		}
		c.o.stats.Replays++
		r := c.conn.launch(p)
		if first == nil {
			first = r
		} else {
			last.Next = r
		}
		last = r
	}
	c.lost = nil
	return first
}

// processDies: the process is gone, with the connection. Under oracle.mu.
func (c *client) processDies() {
	c.next = nil
	for _, n := range c.conns {
		n.dead, n.killed = true, true
	}
	c.conns = nil
}

// waitingFor counts the requests that are not answered. Under oracle.mu.
func (c *client) waitingFor() (n int) {
	n = len(c.lost)
	if c.conn != nil && !c.conn.left {
		n += c.conn.out
	}
	return n
}

// draw chooses a request.
func (c *client) draw() *op {
	if c.setup.Streams > 0 && c.rng.IntN(100) < c.setup.Streams {
		return c.goOn()
	}
	p := &op{kind: blk.Write}
	switch k := c.rng.IntN(100); {
	case k < 35:
		p.kind = blk.Read
	case k < 45:
		p.kind = blk.Flush
		return p
	case k < 51:
		p.kind = blk.WriteZeroes
	case k < 56:
		p.kind = blk.Trim
	}
	if c.setup.Haste && c.rng.IntN(3) == 0 {
		p.kind, p.flags = blk.WriteZeroes, blk.FUA // two commands, one after the other
	}
	if p.kind.Mutates() && c.rng.IntN(6) == 0 {
		p.flags = blk.FUA
	}
	total := int(c.o.size) / c.o.bs
	area, n := min(hotBlocks, total), 1+c.rng.IntN(6)
	if c.rng.IntN(100) < c.setup.LargeShare {
		area, n = total, 1+c.rng.IntN(c.setup.Large/c.o.bs)
	}
	n = min(n, area)
	first := c.rng.IntN(area - n + 1)
	p.off, p.len = uint64(first*c.o.bs), uint32(n*c.o.bs)
	return p
}

// goOn draws a request that begins where the last of its stream ended; now and
// then a new stream, which goes the other way or begins elsewhere.
func (c *client) goOn() *op {
	total := c.o.size / uint64(c.o.bs)
	n := 1 + c.rng.Uint64N(8)
	at := (c.last.off + uint64(c.last.len)) / uint64(c.o.bs)
	if c.rng.IntN(16) == 0 || at+n > total {
		at, c.last.kind = c.rng.Uint64N(total-n+1), blk.Write
		if c.rng.IntN(3) == 0 {
			c.last.kind = blk.Read
		}
	}
	c.last = op{kind: max(c.last.kind, blk.Read), off: at * uint64(c.o.bs), len: uint32(n) * uint32(c.o.bs)}
	p := c.last
	return &p
}
