package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/pathsel"
)

// The maps that S1's snapshot replaced, written as well as they allow, and as
// a textbook would. All count commands and bytes in flight and honour a window,
// as the datapath does.

// lockKind is one of the locked maps.
type lockKind uint8

const (
	// rwLocked: readers share the map; counters are one atomic word per path.
	rwLocked lockKind = iota
	// mutexLocked: the pick is under the lock, the answer counts out by one
	// atomic.
	mutexLocked
	// rwTextbook: counters are two atomics, the answer takes the lock as well, as
	// it looks at the map.
	rwTextbook
	// mutexTextbook: everything under the lock, pick and answer.
	mutexTextbook
)

type lockedPath struct {
	load     pathsel.Load
	commands atomic.Int64 // textbook
	bytes    atomic.Int64
	window   int64 // 0: none
	usable   bool
}

// lockedMap is a path map behind a lock. paths never changes here, but the
// lock is what would allow it to.
type lockedMap struct {
	kind  lockKind
	less  func(ca, cb, ba, bb uint64) bool // nil: round robin
	mu    sync.Mutex
	rw    sync.RWMutex
	next  int // under mu
	_     [64]byte
	turn  atomic.Uint64 // for readers
	_     [64]byte
	paths [s1Paths]*lockedPath
}

func newLockedMap(kind lockKind, sel pathsel.Selector) *lockedMap {
	m := &lockedMap{kind: kind}
	switch sel.Name() {
	case "queue-length":
		m.less = func(ca, cb, _, _ uint64) bool { return ca < cb }
	case "service-time":
		m.less = func(ca, cb, ba, bb uint64) bool { return ba < bb || ba == bb && ca < cb }
	}
	for i := range m.paths {
		m.paths[i] = &lockedPath{usable: true}
	}
	return m
}

// Map implements chooser.
func (m *lockedMap) Map(n uint32) (int, bool) {
	switch m.kind {
	case rwLocked, rwTextbook:
		m.rw.RLock()
		i := m.pick(int(m.turn.Add(1) % s1Paths))
		m.rw.RUnlock()
		return m.start(i, n)
	case mutexTextbook:
		m.mu.Lock()
		defer m.mu.Unlock()
		m.next = (m.next + 1) % s1Paths
		return m.start(m.pick(m.next), n)
	}
	m.mu.Lock()
	m.next = (m.next + 1) % s1Paths
	i := m.pick(m.next)
	m.mu.Unlock()
	return m.start(i, n)
}

// pick is the selector, from path first on. Under the lock.
func (m *lockedMap) pick(first int) int {
	if m.less == nil {
		for k := range s1Paths {
			if i := (first + k) % s1Paths; m.free(i) {
				return i
			}
		}
		return -1
	}
	best, bestC, bestB := -1, uint64(0), uint64(0)
	for k := range s1Paths {
		i := (first + k) % s1Paths
		if !m.paths[i].usable {
			continue
		}
		c, b := m.inflight(i)
		if m.room(i, c) && (best < 0 || m.less(c, bestC, b, bestB)) {
			best, bestC, bestB = i, c, b
		}
	}
	return best
}

// free is the busy check.
func (m *lockedMap) free(i int) bool {
	p := m.paths[i]
	if !p.usable || p.window == 0 {
		return p.usable
	}
	c, _ := m.inflight(i)
	return m.room(i, c)
}

func (m *lockedMap) room(i int, commands uint64) bool {
	return m.paths[i].window == 0 || int64(commands) < m.paths[i].window
}

func (m *lockedMap) inflight(i int) (commands, bytes uint64) {
	if m.kind == rwTextbook || m.kind == mutexTextbook {
		return uint64(m.paths[i].commands.Load()), uint64(m.paths[i].bytes.Load())
	}
	return m.paths[i].load.Read()
}

func (m *lockedMap) start(i int, n uint32) (int, bool) {
	switch {
	case i < 0:
		return 0, false
	case m.kind == rwTextbook || m.kind == mutexTextbook:
		m.paths[i].commands.Add(1)
		m.paths[i].bytes.Add(int64(n))
	default:
		m.paths[i].load.Start(n)
	}
	return i, true
}

// Done implements chooser.
func (m *lockedMap) Done(i int, n uint32) {
	switch m.kind {
	case rwTextbook:
		m.rw.RLock()
		m.end(i, n)
		m.rw.RUnlock()
	case mutexTextbook:
		m.mu.Lock()
		m.end(i, n)
		m.mu.Unlock()
	default:
		m.paths[i].load.End(n)
	}
}

func (m *lockedMap) end(i int, n uint32) {
	m.paths[i].commands.Add(-1)
	m.paths[i].bytes.Add(-int64(n))
}

func lockedSide(name string, kind lockKind, sel pathsel.Selector, workers int) side {
	return side{name: name, run: func(ctx context.Context, d time.Duration) (sample, error) {
		m := newLockedMap(kind, sel)
		return mapRun(ctx, d, workers, func(int) chooser[int] { return m }, func(i int) int { return i },
			func() (n uint64) {
				for i := range m.paths {
					c, _ := m.inflight(i)
					n += c
				}
				return n
			})
	}}
}
