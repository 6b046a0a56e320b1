package writers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// writer owns the blocks of its range. Only its goroutine touches what has no
// other word here, until ended is closed; then everybody may read it.
type writer struct {
	l   *Load
	id  uint32
	rng *rand.Rand
	buf []byte // aligned for O_DIRECT

	sent, acked   []uint64 // of each block: the newest write begun, and acknowledged
	writes, reads int
	err           error
	ended         chan struct{}

	// Written by the writer's goroutine, read by those who watch it; a stale
	// value makes a stall look a little shorter or longer, no more. All are
	// nanoseconds since the load began.
	begun  atomic.Int64 // of the operation that waits, 0 for none
	newest atomic.Int64 // beginning of the last operation that ended

	mu          sync.Mutex // guards what follows: the longest operation since it was taken
	stall       time.Duration
	stallBegan  time.Duration
	countedFrom time.Duration // a waiting operation counts from here on
}

func newWriter(l *Load, id uint32) *writer {
	n := l.cfg.Size / int64(l.cfg.Block)
	return &writer{l: l, id: id, rng: rand.New(rand.NewPCG(l.cfg.Seed, uint64(id))),
		sent: make([]uint64, n), acked: make([]uint64, n), ended: make(chan struct{})}
}

func (w *writer) run() {
	defer close(w.ended)
	w.err = w.work()
}

func (w *writer) work() error {
	flags := os.O_RDWR
	if w.l.cfg.Dir != "" {
		flags |= os.O_CREATE
	}
	if w.l.cfg.Sync == Dsync {
		flags |= unix.O_DSYNC
	}
	path, offset := w.l.path(w.id, "")
	f, err := open(path, flags, !w.l.cfg.Buffered)
	if err != nil {
		return fmt.Errorf("writer %d: %w", w.id, err)
	}
	defer func() { _ = f.Close() }()
	if w.buf, err = buffer(w.l.cfg.Block); err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(w.buf) }()
	for i := 1; !w.l.stop.Load(); i++ {
		b := uint64(w.rng.IntN(len(w.acked)))
		at := offset + int64(b)*int64(w.l.cfg.Block)
		do := w.write
		if i%8 == 0 && !w.l.cfg.NoReads && w.acked[b] > 0 {
			do = w.read
		}
		begun := w.l.since()
		w.begun.Store(int64(begun))
		err := do(f, b, at)
		w.finished(begun)
		if err != nil {
			return fmt.Errorf("writer %d, block %d of %s at %d: %w", w.id, b, path, at, err)
		}
	}
	return nil
}

func (w *writer) write(f *os.File, b uint64, at int64) error {
	w.sent[b]++
	fill(w.buf, place{w.id, b}, w.sent[b])
	if _, err := f.WriteAt(w.buf, at); err != nil {
		return err
	}
	if w.l.cfg.Sync == Fsync {
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return fmt.Errorf("fdatasync: %w", err)
		}
	}
	w.acked[b] = w.sent[b]
	w.writes++
	return nil
}

func (w *writer) read(f *os.File, b uint64, at int64) error {
	if _, err := f.ReadAt(w.buf, at); err != nil {
		return err
	}
	w.reads++
	return check(w.buf, place{w.id, b}, w.acked[b], w.sent[b])
}

func (w *writer) finished(begun time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun.Store(0)
	w.newest.Store(int64(begun))
	if d := w.l.since() - max(begun, w.countedFrom); d > w.stall {
		w.stall, w.stallBegan = d, begun
	}
}

// takeStall returns the longest operation and begins anew.
func (w *writer) takeStall() (d, begun time.Duration, waiting bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.l.since()
	d, begun = w.stall, w.stallBegan
	if b := time.Duration(w.begun.Load()); b > 0 && now-max(b, w.countedFrom) > d {
		d, begun, waiting = now-max(b, w.countedFrom), b, true
	}
	w.stall, w.countedFrom = 0, now
	return d, begun, waiting
}

// open opens with O_DIRECT where the file system has it; tmpfs of older kernels
// has not.
func open(path string, flags int, direct bool) (*os.File, error) {
	if direct {
		f, err := os.OpenFile(path, flags|unix.O_DIRECT, 0o600)
		if !errors.Is(err, syscall.EINVAL) {
			return f, err
		}
	}
	return os.OpenFile(path, flags, 0o600)
}

// buffer is page-aligned, as O_DIRECT wants it.
func buffer(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
}
