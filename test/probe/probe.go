package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Block is the size of each request, bytes.
const Block = 4096

// maxSamples bounds what one probe remembers.
const maxSamples = 8 << 20

// Options describe the load of one probe.
type Options struct {
	// Off and Size are the probe's own region, bytes, multiples of Block. Every
	// block of it is written by the probe alone.
	Off, Size uint64
	// Workers is the number of requests kept in flight.
	Workers int
	// Hot makes every worker write one and the same block of its own again and
	// again: its writes overlap the ones before. Otherwise no block is written
	// twice within Reuse.
	Hot bool
	// Reuse is the shortest time between two writes of one block.
	Reuse time.Duration
	Seed  uint64
}

// sample is one answered request.
type sample struct{ start, end time.Duration }

// Probe keeps Workers requests in flight on one connection: each worker writes
// a block of its own part of the region, reads back one that it wrote before,
// and so on. Each write has a stamp, so a lost, stale or misplaced write shows.
type Probe struct {
	opt  Options
	conn *Conn
	base time.Time
	stop chan struct{}
	wg   sync.WaitGroup

	workers []*worker

	mu      sync.Mutex
	samples []sample
	errs    []error
}

// worker owns an equal part of the region. All fields but started are its own.
type worker struct {
	p       *Probe
	first   uint64 // block number, from the device's start
	stamps  []uint64
	written []time.Duration
	rng     *rand.Rand
	buf     []byte
	want    []byte
	// started is the start of the request in flight, 0 for none. Written by the
	// worker, read by Worst; a stale read is a request that has just ended, which
	// is then among the samples.
	started atomic.Int64
}

// Start connects and begins.
func Start(ctx context.Context, socket string, opt Options) (*Probe, error) {
	c, err := Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	if opt.Off+opt.Size > c.Size() || opt.Size < uint64(opt.Workers)*Block {
		return nil, errors.Join(fmt.Errorf("the device of %d bytes has no room for the probe's region", c.Size()), c.Close())
	}
	p := &Probe{opt: opt, conn: c, base: time.Now(), stop: make(chan struct{})}
	per := opt.Size / Block / uint64(opt.Workers)
	if opt.Hot {
		per = 1
	}
	for i := range opt.Workers {
		w := &worker{p: p, first: opt.Off/Block + uint64(i)*per, stamps: make([]uint64, per),
			written: make([]time.Duration, per), rng: rand.New(rand.NewPCG(opt.Seed, uint64(i))), buf: make([]byte, Block), want: make([]byte, Block)}
		p.workers = append(p.workers, w)
		p.wg.Go(w.run)
	}
	return p, nil
}

// Now is the probe's clock.
func (p *Probe) Now() time.Duration { return time.Since(p.base) }

func (w *worker) run() {
	for i := uint64(0); ; i++ {
		select {
		case <-w.p.stop:
			return
		default:
		}
		if err := w.step(i); err != nil {
			w.p.fail(err)
			return
		}
	}
}

// step writes block i of the part (which wraps), then reads an older one.
func (w *worker) step(i uint64) error {
	n := uint64(len(w.stamps))
	at := i % n
	if !w.p.opt.Hot && i >= n {
		w.waitUntil(w.written[at] + w.p.opt.Reuse)
	}
	w.stamps[at]++
	w.stamp(at, w.buf)
	if err := w.timed(func() error { return w.p.conn.Write((w.first+at)*Block, w.buf) }); err != nil {
		return fmt.Errorf("write of block %d: %w", w.first+at, err)
	}
	w.written[at] = w.p.Now()
	if w.p.opt.Hot {
		return nil
	}
	return w.check(w.rng.Uint64N(min(i+1, n)))
}

func (w *worker) waitUntil(t time.Duration) {
	left := t - w.p.Now()
	if left <= 0 {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.p.stop:
	}
}

// stamp fills b with what the block must hold now: its number and its version,
// repeated, so that a torn block shows too.
func (w *worker) stamp(at uint64, b []byte) {
	for i := 0; i < len(b); i += 16 {
		binary.LittleEndian.PutUint64(b[i:], w.first+at)
		binary.LittleEndian.PutUint64(b[i+8:], w.stamps[at])
	}
}

// check reads a block and compares it with its stamp.
func (w *worker) check(at uint64) error {
	if err := w.timed(func() error { return w.p.conn.Read((w.first+at)*Block, w.buf) }); err != nil {
		return fmt.Errorf("read of block %d: %w", w.first+at, err)
	}
	return w.compare(at, w.buf)
}

func (w *worker) compare(at uint64, got []byte) error {
	w.stamp(at, w.want)
	if !bytes.Equal(got, w.want) {
		return fmt.Errorf("MISMATCH: block %d holds block %d version %d, wanted version %d", w.first+at,
			binary.LittleEndian.Uint64(got), binary.LittleEndian.Uint64(got[8:]), w.stamps[at])
	}
	return nil
}

func (w *worker) timed(f func() error) error {
	start := w.p.Now()
	w.started.Store(int64(start))
	err := f()
	w.p.record(sample{start, w.p.Now()})
	w.started.Store(0)
	return err
}

func (p *Probe) record(s sample) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.samples) < maxSamples {
		p.samples = append(p.samples, s)
	}
}

func (p *Probe) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errs = append(p.errs, err)
}

// Worst is the longest answer time among the requests that were in flight at
// any moment from..to, and their number. Those without an answer yet count
// with their age.
func (p *Probe) Worst(from, to time.Duration) (worst time.Duration, n int) {
	take := func(s sample) {
		if s.start <= to && s.end >= from {
			n++
			worst = max(worst, s.end-s.start)
		}
	}
	for _, w := range p.workers {
		if at := w.started.Load(); at != 0 {
			take(sample{time.Duration(at), p.Now()})
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.samples {
		take(s)
	}
	return worst, n
}

// Oldest is the age of the longest waiting request, 0 when none is in flight.
func (p *Probe) Oldest() time.Duration {
	var oldest time.Duration
	for _, w := range p.workers {
		if at := w.started.Load(); at != 0 {
			oldest = max(oldest, p.Now()-time.Duration(at))
		}
	}
	return oldest
}

// Err is what failed so far: I/O errors and mismatches.
func (p *Probe) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.errs...)
}

// Requests counts the answers so far.
func (p *Probe) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.samples)
}

// More waits until at least n requests that begin after the call are answered.
func (p *Probe) More(ctx context.Context, n int) error {
	from := p.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, now := p.Worst(from, p.Now()); now >= n+2*len(p.workers) { // some were in flight then, some are now
			return p.Err()
		}
		if err := p.Err(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("fewer than %d requests: %w", n, ctx.Err())
		}
	}
}

// Stop ends the load, reads every block that was written once more, and
// returns all failures.
func (p *Probe) Stop() error {
	close(p.stop)
	p.wg.Wait()
	if p.Err() == nil {
		p.sweep()
	}
	_ = p.conn.Close()
	return p.Err()
}

// sweepBlocks is how much one read of the last look covers, blocks.
const sweepBlocks = 64

func (p *Probe) sweep() {
	for _, w := range p.workers {
		p.wg.Go(func() {
			for at := uint64(0); at < uint64(len(w.stamps)); at += sweepBlocks {
				if err := w.checkRange(at, min(sweepBlocks, uint64(len(w.stamps))-at)); err != nil {
					p.fail(fmt.Errorf("last look: %w", err))
					return
				}
			}
		})
	}
	p.wg.Wait()
}

// checkRange reads n blocks at once and compares those that were written.
func (w *worker) checkRange(at, n uint64) error {
	if !slices.ContainsFunc(w.stamps[at:at+n], func(v uint64) bool { return v != 0 }) {
		return nil
	}
	buf := make([]byte, n*Block)
	if err := w.p.conn.Read((w.first+at)*Block, buf); err != nil {
		return fmt.Errorf("read of %d blocks at %d: %w", n, w.first+at, err)
	}
	for i := range n {
		if w.stamps[at+i] == 0 {
			continue
		}
		if err := w.compare(at+i, buf[i*Block:(i+1)*Block]); err != nil {
			return err
		}
	}
	return nil
}
