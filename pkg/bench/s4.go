package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/datapath"
)

// S4: merging, over four paths to an array in memory that is limited by
// commands. Writers keep 4 KiB writes in flight, each at its own place. One
// operation is one write; the array checks where each block of it belongs.

const (
	s4Paths   = 4
	s4Writers = 16
	s4Depth   = 8 // of a writer
	// s4PerKiB is what data costs: 1 GB/s.
	s4PerKiB = time.Microsecond
	s4Cost   = 20 * time.Microsecond
)

// s4Deadlines are the fixed values that are tried.
var s4Deadlines = []time.Duration{0, 200 * time.Microsecond, 500 * time.Microsecond, time.Millisecond,
	2 * time.Millisecond, 5 * time.Millisecond}

// s4Costs are the targets that auto has to find its way on.
var s4Costs = []time.Duration{20 * time.Microsecond, 60 * time.Microsecond, 160 * time.Microsecond}

const (
	megabytes    metric = "MB/s"
	meanLatency  metric = "mean latency, us"
	unitSize     metric = "writes per command"
	heldRequests metric = "commands held"
	settleSecs   metric = "seconds until auto keeps still"
	chosen       metric = "deadline chosen, us"
)

// writing is what the writers of one run do.
type writing struct {
	lanes, writers, depth int
	single                bool // each write is submitted by itself, not all that are ready together
	random                bool
	price                 price
}

func (w writing) String() string {
	kind, how := "sequential", "together"
	if w.random {
		kind = "random"
	}
	if w.single {
		how = "one by one"
	}
	return fmt.Sprintf("%d %s 4k writers, depth %d, %d lanes, submitted %s", w.writers, kind, w.depth, w.lanes, how)
}

// writerClient is the client of one lane: its share of the writers.
type writerClient struct {
	*client
	began   []time.Time // by slot; zero: not out
	latency time.Duration
}

func newWriterClient(w writing, lane int) *writerClient {
	share := w.writers / w.lanes
	c := &writerClient{client: newClient(lane, share*w.depth, w.single, nil), began: make([]time.Time, share*w.depth)}
	region := uint64(volumeSize / w.writers)
	next := make([]uint64, share)
	for i := range next {
		next[i] = uint64(lane*share+i) * region
	}
	for i := range c.reqs {
		c.reqs[i].Buf = make([]byte, requestSize)
	}
	rng := rand.New(rand.NewPCG(4, uint64(lane)))
	c.prepare = func(r *blk.Request) {
		at := &next[int(r.Slot)/w.depth]
		if w.random {
			*at = rng.Uint64N(volumeSize/requestSize) * requestSize
		}
		r.Off, r.Cookie = *at, ^*at
		stamp(r.Buf, r.Off)
		*at += requestSize
		c.began[r.Slot] = time.Now()
	}
	c.client.answered = func(r *blk.Request) error {
		if b := &c.began[r.Slot]; !b.IsZero() {
			c.latency += time.Since(*b)
			*b = time.Time{}
		}
		return nil
	}
	return c
}

// writingSide measures the datapath with a merge deadline.
func writingSide(name string, deadline time.Duration, w writing) side {
	s := side{name: name, run: func(ctx context.Context, d time.Duration) (sample, error) {
		ps := pathsOf(s4Paths, 64, w.lanes, 0)
		a := newArray(w.price, ps)
		dev, err := openMerging(ctx, nil, ps, deadline)
		if err != nil {
			return nil, err
		}
		r := &writingRun{dev: dev, array: a}
		s, err := r.run(ctx, d, w, deadline == datapath.MergeAuto)
		for _, l := range r.lanes {
			l.Close()
		}
		if err := errors.Join(err, closeDevice(dev, ps)); err != nil {
			return nil, err
		}
		if bad := a.bad.Load(); bad != 0 {
			return nil, checkf("%d blocks were not where they belong", bad)
		}
		return s, nil
	}}
	if deadline == datapath.MergeAuto {
		s.extra = learnUsual
	}
	return s
}

type writingRun struct {
	dev     *datapath.Device
	array   *array
	lanes   []*datapath.Lane
	clients []*writerClient
	workers []worker
}

func (r *writingRun) run(ctx context.Context, d time.Duration, w writing, learn bool) (s sample, err error) {
	for i := range w.lanes {
		c := newWriterClient(w, i)
		l, err := r.dev.OpenLane(len(c.reqs))
		if err != nil {
			return nil, err
		}
		r.lanes, r.clients, r.workers = append(r.lanes, l), append(r.clients, c), append(r.workers, c.loop(l))
	}
	settled := time.Duration(0)
	if learn {
		if settled, err = r.learn(ctx, d); err != nil {
			return nil, err
		}
	}
	before := r.array.commands.Load()
	for _, c := range r.clients {
		c.latency = 0
	}
	ops, s, err := drive(ctx, d, r.workers)
	errs := []error{err}
	latency := time.Duration(0)
	for _, c := range r.clients {
		latency += c.latency
		errs = append(errs, c.verify())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s[megabytes] = s[opsPerSecond] * requestSize / 1e6
	all := float64(max(ops, 0) + int64(w.writers*w.depth)) // the last ones are answered after the end
	s[meanLatency] = float64(latency.Microseconds()) / all
	s[unitSize] = all / float64(max(r.array.commands.Load()-before, 1))
	s[heldRequests] = float64(r.dev.Status().Merge.Held)
	s[settleSecs] = settled.Seconds()
	s[chosen] = float64(r.dev.Status().Merge.Deadline.Microseconds())
	return s, nil
}

// learn runs the load until auto has tried what it wants to. d is the length of
// the sample: a quick one does not wait.
func (r *writingRun) learn(ctx context.Context, d time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	limit := learnTime + learnTime/2 // beyond the goal, to see by how much it is missed
	if d <= quickSample {
		limit = d
	}
	start := time.Now()
	go func() {
		defer cancel()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for began := false; ; {
			trying := r.dev.Status().Merge.Trying
			if began && !trying {
				return
			}
			began = began || trying
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	_, _, err := drive(ctx, limit, r.workers)
	return time.Since(start), err
}
