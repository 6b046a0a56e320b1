// Package writers puts a load on a block device or a file system that can say
// afterwards, block by block, whether an acknowledged write was lost.
//
// Each writer owns its blocks and has one request in flight, so for every block
// it knows the newest write that was acknowledged. It reads back at random
// while it runs, and Verify reads everything at the end. Meanwhile the load
// knows its longest stall.
package writers

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// Sync is what must have happened before a writer takes a write for
// acknowledged.
type Sync int

// The ways to acknowledge.
const (
	Fsync  Sync = iota // write, then fdatasync
	Dsync              // O_DSYNC: FUA, or a flush by the kernel
	NoSync             // the write's own answer
)

// Config describes a load. Path or Dir is set.
type Config struct {
	Path     string // a block device or a file that exists; each writer has a range of it
	Dir      string // a folder; each writer has a file
	Base     int64  // bytes of Path before the first range
	Size     int64  // bytes of a writer's range or file; its fresh content is zeros
	Max      int    // writers that ever run, 1..1000
	Block    int    // bytes of a write; 0 is 4096; a multiple of 512 and of the device's blocks
	Sync     Sync
	Buffered bool // through the page cache, not O_DIRECT
	NoReads  bool // otherwise each eighth operation reads a block back
	Seed     uint64
}

// Load is a set of running writers. Its methods may be called from any
// goroutine, Verify only after Stop.
type Load struct {
	cfg  Config
	base time.Time
	stop atomic.Bool // written by Stop, read by the writers before each operation

	mu  sync.Mutex // guards all
	all []*writer
}

// Limits of the package.
const (
	maxWriters = 1000
	pollEvery  = 5 * time.Millisecond
	maxReport  = 20 // blocks named in an error
)

// Start starts n writers.
func Start(cfg Config, n int) (*Load, error) {
	if cfg.Block == 0 {
		cfg.Block = 4096
	}
	if (cfg.Path == "") == (cfg.Dir == "") || cfg.Block < sector || cfg.Block%sector != 0 ||
		cfg.Size < int64(cfg.Block) || cfg.Max < 1 || cfg.Max > maxWriters {
		return nil, fmt.Errorf("writers: want a path or a folder, blocks of 512 bytes and up, one per writer at least, 1..%d writers; got %+v", maxWriters, cfg)
	}
	l := &Load{cfg: cfg, base: time.Now()}
	return l, l.Add(n)
}

// Add starts more writers: fresh ones, whose first requests come now.
func (l *Load) Add(n int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range n {
		if len(l.all) == l.cfg.Max {
			return fmt.Errorf("writers: %d run already, the most there may be", l.cfg.Max)
		}
		w := newWriter(l, uint32(len(l.all)))
		l.all = append(l.all, w)
		go w.run()
	}
	return nil
}

func (l *Load) writers() []*writer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*writer(nil), l.all...)
}

// path and offset of a writer's blocks; at replaces the load's own Path or Dir.
func (l *Load) path(w uint32, at string) (path string, offset int64) {
	if l.cfg.Dir != "" {
		if at == "" {
			at = l.cfg.Dir
		}
		return filepath.Join(at, fmt.Sprintf("writer-%03d", w)), 0
	}
	if at == "" {
		at = l.cfg.Path
	}
	return at, l.cfg.Base + int64(w)*(l.cfg.Size/int64(l.cfg.Block))*int64(l.cfg.Block)
}

func (l *Load) since() time.Duration { return time.Since(l.base) }

// Stall is the longest operation of a span of time.
type Stall struct {
	Writer  int
	For     time.Duration // of the whole operation: write and sync
	Begun   time.Time
	Waiting bool // it has not ended yet
}

// TakeStall is the longest operation, finished or still waiting, since the last
// call.
func (l *Load) TakeStall() Stall {
	var s Stall
	for _, w := range l.writers() {
		if d, begun, waiting := w.takeStall(); d > s.For {
			s = Stall{int(w.id), d, l.base.Add(begun), waiting}
		}
	}
	return s
}

// Progress waits until every writer has finished an operation that it began
// after the call: the device answers again.
func (l *Load) Progress(ctx context.Context) error {
	from := l.since()
	return l.until(ctx, func(w *writer) bool { return time.Duration(w.newest.Load()) > from })
}

// until waits for every writer to be done or to have ended.
func (l *Load) until(ctx context.Context, done func(*writer) bool) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for _, w := range l.writers() {
		for !done(w) {
			select {
			case <-w.ended:
				if w.err != nil {
					return w.err
				}
			case <-ctx.Done():
				return fmt.Errorf("%s: %w", l.waiting(), ctx.Err())
			case <-tick.C:
				continue
			}
			break
		}
	}
	return nil
}

func (l *Load) waiting() string {
	n, longest := 0, time.Duration(0)
	for _, w := range l.writers() {
		if begun := time.Duration(w.begun.Load()); begun > 0 {
			n, longest = n+1, max(longest, l.since()-begun)
		}
	}
	return fmt.Sprintf("%d of %d writers wait for an answer, the longest for %v", n, len(l.writers()), longest.Round(time.Millisecond))
}

// Err is the first I/O error or wrong block of a read so far.
func (l *Load) Err() error {
	for _, w := range l.writers() {
		select {
		case <-w.ended:
			if w.err != nil {
				return w.err
			}
		default:
		}
	}
	return nil
}

// Result is what a load has done.
type Result struct {
	Writes, Reads int
	Elapsed       time.Duration
}

// Stop ends the load after each writer's current operation. An I/O error, a
// wrong block, or a writer that still waits when ctx ends is an error.
func (l *Load) Stop(ctx context.Context) (Result, error) {
	l.stop.Store(true)
	r := Result{Elapsed: l.since()}
	if err := l.until(ctx, func(*writer) bool { return false }); err != nil && ctx.Err() != nil {
		return r, err
	}
	var errs []error
	for _, w := range l.writers() {
		r.Writes += w.writes
		r.Reads += w.reads
		errs = append(errs, w.err)
	}
	return r, errors.Join(errs...)
}
