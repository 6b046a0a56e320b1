package bench

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// dispatchKind is one of the dispatchers.
type dispatchKind uint8

const (
	// dispatchQueued: buffered channels, answers flushed when there are no more.
	dispatchQueued dispatchKind = iota
	// dispatchTextbook: unbuffered channels, each answer flushed.
	dispatchTextbook
	// dispatchInline: as dispatchQueued, but the dispatcher itself does what the
	// paths' goroutines do. Only a path that never blocks allows that: a
	// dispatcher that writes to sockets would hold up all paths for one.
	dispatchInline
)

// dispatcher is the design that S3 replaced with next to nothing in it: one
// goroutine picks a path under a lock and hands on to the path's goroutine. Of
// the datapath's work it has loads, tags and the table of I3, but no failover,
// retry, split, merge, window or state of a request: what a dispatcher costs at
// the very least. The baseline with the same work is lockedBuild.
type dispatcher struct {
	kind dispatchKind
	in   chan *blk.Request
	done sync.WaitGroup

	mu      sync.Mutex
	next    int
	paths   []*lockedQueue
	entries [][]lockedEntry // by lane and slot: I3
	bad     error
}

type lockedQueue struct {
	commands, bytes uint64
	tags            []uint32
	table           []*lockedCommand
	depth           int
	work            chan *lockedCommand
	held            []*client // with answers not flushed; the path's goroutine's
}

type lockedEntry struct {
	off   uint64
	len   uint32
	path  int32
	inUse bool
}

type lockedCommand struct {
	blk.Command
	req  *blk.Request
	path int
}

// dispatchBatch is how many answers are held at most.
const dispatchBatch = 64

func newDispatcher(kind dispatchKind, paths, depth int, l load) *dispatcher {
	d := &dispatcher{kind: kind}
	room := l.lanes * l.depth
	if kind == dispatchTextbook {
		room = 0
	}
	d.in = make(chan *blk.Request, room)
	depth = max(depth, l.lanes*l.depth) // it never waits for a tag
	for range paths {
		q := &lockedQueue{table: make([]*lockedCommand, depth), depth: depth, work: make(chan *lockedCommand, room)}
		for i := range depth {
			q.tags = append(q.tags, uint32(i))
		}
		d.paths = append(d.paths, q)
	}
	for range l.lanes {
		d.entries = append(d.entries, make([]lockedEntry, l.depth))
	}
	return d
}

// laneOf is a client's way into the dispatcher.
type laneOf struct {
	d    *dispatcher
	lane uint32
	cmds []lockedCommand
}

func (d *dispatcher) open(lane, depth int) *laneOf {
	l := &laneOf{d: d, lane: uint32(lane), cmds: make([]lockedCommand, depth)}
	for i := range l.cmds {
		l.cmds[i].Lane, l.cmds[i].Slot = l.lane, uint32(i)
	}
	return l
}

// Submit implements submitter: one hand-over per request.
func (l *laneOf) Submit(r *blk.Request) {
	for r != nil {
		next := r.Next
		r.Next = nil
		l.d.in <- r
		r = next
	}
}

// run is the dispatcher's goroutine.
func (d *dispatcher) run(lanes []*laneOf) {
	for r := range d.in {
		c := d.dispatch(lanes, r)
		q := d.paths[c.path]
		if d.kind != dispatchInline {
			q.work <- c
			continue
		}
		d.answer(q, c)
		if len(d.in) == 0 || len(q.held) == dispatchBatch {
			for _, q := range d.paths {
				q.flush()
			}
		}
	}
	for _, q := range d.paths {
		close(q.work)
	}
}

// serve is a path's goroutine.
func (d *dispatcher) serve(q *lockedQueue) {
	for c := range q.work {
		d.answer(q, c)
		if len(q.work) == 0 || len(q.held) == dispatchBatch {
			q.flush()
		}
	}
}

// dispatch maps a request and books it.
func (d *dispatcher) dispatch(lanes []*laneOf, r *blk.Request) *lockedCommand {
	lane := laneOfRequest(r, len(lanes[0].cmds))
	c := &lanes[lane].cmds[r.Slot]
	c.Op, c.Off, c.Len, c.Buf, c.req, c.Verdict = r.Op, r.Off, r.Len, r.Buf, r, blk.Verdict{}
	d.mu.Lock()
	defer d.mu.Unlock()
	c.path = d.pick()
	q := d.paths[c.path]
	q.commands++
	q.bytes += uint64(c.Len)
	e := &d.entries[lane][r.Slot]
	if e.inUse {
		d.bad = checkf("slot %d of lane %d was dispatched twice", r.Slot, lane)
	}
	*e = lockedEntry{off: r.Off, len: r.Len, path: int32(c.path), inUse: true}
	c.Tag = q.tags[len(q.tags)-1]
	q.tags = q.tags[:len(q.tags)-1]
	if q.table[c.Tag] != nil {
		d.bad = checkf("tag %d was given out twice", c.Tag)
	}
	q.table[c.Tag] = c
	return c
}

// pick is service-time. Under mu.
func (d *dispatcher) pick() int {
	best := -1
	d.next++
	for k := range d.paths {
		i := (d.next + k) % len(d.paths)
		q := d.paths[i]
		if best < 0 || q.bytes < d.paths[best].bytes || q.bytes == d.paths[best].bytes && q.commands < d.paths[best].commands {
			best = i
		}
	}
	return best
}

// answer takes a command out of the books and answers its request.
func (d *dispatcher) answer(q *lockedQueue, c *lockedCommand) {
	d.mu.Lock()
	if q.table[c.Tag] != c {
		d.bad = checkf("tag %d belongs to another command", c.Tag)
	}
	q.table[c.Tag] = nil
	q.tags = append(q.tags, c.Tag)
	q.commands--
	q.bytes -= uint64(c.Len)
	d.entries[c.Lane][c.Slot].inUse = false
	d.mu.Unlock()
	r := c.req
	r.Status = c.Verdict.Status
	owner := r.Owner.(*client)
	owner.Complete(r)
	q.held = append(q.held, owner)
}

func (q *lockedQueue) flush() {
	for i, c := range q.held {
		if i == 0 || c != q.held[i-1] {
			c.Flush()
		}
	}
	q.held = q.held[:0]
}

func (d *dispatcher) verify() error {
	for i, q := range d.paths {
		if d.bad == nil && (len(q.tags) != q.depth || q.commands != 0 || q.bytes != 0) {
			return checkf("path %d ended with %d of %d tags, %d commands", i, len(q.tags), q.depth, q.commands)
		}
	}
	return d.bad
}

// dispatcherSide measures one, over two paths.
func dispatcherSide(name string, kind dispatchKind, depth int, l load) side {
	return side{name: name, run: func(ctx context.Context, d time.Duration) (sample, error) {
		disp := newDispatcher(kind, 2, depth, l)
		lanes := make([]*laneOf, l.lanes)
		for i := range lanes {
			lanes[i] = disp.open(i, l.depth)
		}
		disp.done.Go(func() { disp.run(lanes) })
		for _, q := range disp.paths {
			disp.done.Go(func() { disp.serve(q) })
		}
		s, err := l.run(ctx, d, func(i int) (submitter, error) { return lanes[i], nil })
		close(disp.in)
		disp.done.Wait()
		return s, errors.Join(err, disp.verify())
	}}
}
