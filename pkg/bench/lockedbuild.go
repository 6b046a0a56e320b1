package bench

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/datapath"
)

// lockedBuild is the datapath as it would be with a dispatcher: the same lanes,
// tables, retries and I3 tracking, but submitters hand each request to one
// goroutine, which runs the lanes under a lock, and each path hands what it
// would send to a goroutine of its own, which answers under that lock. So only
// who does the work differs from the datapath's side, and that is what S3 is
// about.
//
// Written as well as that allows: a buffered channel, and answers flushed when
// there are no more. textbook drops the two.
type lockedBuild struct {
	in    chan *blk.Request
	mu    sync.Mutex
	lanes []*datapath.Lane
	depth int // of a lane
	done  sync.WaitGroup
}

// Submit implements submitter: one hand-over per request.
func (b *lockedBuild) Submit(r *blk.Request) {
	for r != nil {
		next := r.Next
		r.Next = nil
		b.in <- r
		r = next
	}
}

func (b *lockedBuild) run() {
	for r := range b.in {
		b.mu.Lock()
		b.lanes[laneOfRequest(r, b.depth)].Submit(r)
		b.mu.Unlock()
	}
}

// laneOfRequest knows a client by its range.
func laneOfRequest(r *blk.Request, depth int) int { return int(r.Off / requestSize / uint64(depth)) }

// hander is a path's goroutine in the locked build.
type hander struct {
	build *lockedBuild
	batch int
	work  chan *blk.Command
	done  chan struct{}
}

// take hands over what the lanes have queued. The channel has room for all tags
// of the path, so it never blocks.
func (h *hander) take(p *nullPath) {
	for i := range p.queues {
		for c := p.queues[i].Drain(); c != nil; {
			next := c.Next
			c.Next = nil
			h.work <- c
			c = next
		}
	}
}

func (h *hander) start(p *nullPath) {
	go func() {
		defer close(h.done)
		for c := range h.work {
			h.build.mu.Lock()
			p.queues[c.Lane].answered.Add(1)
			lanes := p.answer(c)
			for n := 1; n < h.batch && len(h.work) > 0; n++ {
				c := <-h.work
				p.queues[c.Lane].answered.Add(1)
				lanes |= p.answer(c)
			}
			p.sink.BatchEnd(lanes)
			h.build.mu.Unlock()
		}
	}()
}

func (h *hander) halt() {
	close(h.work)
	<-h.done
}

func lockedBuildSide(name string, paths, depth int, l load, textbook bool) side {
	room, batch := l.lanes*l.depth, dispatchBatch
	if textbook {
		room, batch = 0, 1
	}
	return side{name: name, run: func(ctx context.Context, d time.Duration) (s sample, err error) {
		b := &lockedBuild{in: make(chan *blk.Request, room), depth: l.depth}
		ps := pathsOf(paths, depth, l.lanes, 0)
		for _, p := range ps {
			p.reader = &hander{build: b, batch: batch, work: make(chan *blk.Command, depth), done: make(chan struct{})}
		}
		dev, err := openDevice(ctx, nil, ps)
		if err != nil {
			return nil, err
		}
		for range l.lanes {
			lane, err := dev.OpenLane(l.depth)
			if err != nil {
				return nil, errors.Join(err, closeDevice(dev, ps))
			}
			b.lanes = append(b.lanes, lane)
		}
		b.done.Go(b.run)
		s, err = l.run(ctx, d, func(int) (submitter, error) { return b, nil })
		close(b.in)
		b.done.Wait()
		for _, lane := range b.lanes {
			lane.Close()
		}
		return s, errors.Join(err, closeDevice(dev, ps))
	}}
}
