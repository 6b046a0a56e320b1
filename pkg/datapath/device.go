// Package datapath moves the requests of one block device over several paths.
//
// Numbered rules (I1..I11) are those of ARCHITECTURE.md.
//
// Threading: a Lane's state belongs to its runner (lane.go); a path's answers
// come from its reader (live.go); paths come and go on one control goroutine
// each (path.go); the table of usable paths is an immutable snapshot
// (table.go). The control lock guards only what changes when a path does, and
// no request ever waits for it in steady state.
package datapath

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/merge"
	"github.com/csi-mpath/csi-mpath/pkg/pathsel"
)

// Never as a NoPathTimeout: hold I/O for as long as no path is usable (I5).
const Never = time.Duration(-1)

// Config says how a device behaves.
type Config struct {
	// Name is what events and errors call the volume.
	Name string
	// Selector picks paths; nil means service-time.
	Selector pathsel.Selector
	// MinPaths is how many paths Open waits for; 0 means 1.
	MinPaths int
	// NoPathTimeout is how long I/O is held while no path is usable, counted
	// from the loss of the last one; then it fails until a path is back. Never
	// (the default of the product) holds it for ever; 0 fails it at once.
	NoPathTimeout time.Duration
	// CommandTimeout bounds retries after BUSY and the like; 0 means 30 s.
	CommandTimeout time.Duration
	// MultiWriter: other nodes write too; an in-doubt write is answered only
	// when fenced (I3).
	MultiWriter bool
	ReadOnly    bool
	// WWID, when set, is the device identity every path must show (I1); it also
	// admits identities that are weak otherwise.
	WWID string
	// Ledger is LedgerSize bytes of memory that may outlive the process, from
	// which Open takes what a predecessor left in doubt (I3, I8). nil: memory of
	// this process.
	Ledger []byte
	// LedgerKey must be equal for a ledger to count: see LedgerKey.
	LedgerKey uint64
	// Replays says that the client sends unanswered requests again after a
	// restart (the kernel does); otherwise they count as cancelled.
	Replays bool
	// Reference and ReferenceSize are what the volume was before, when it was:
	// nothing else is accepted, nor anything smaller. nil: the first path says.
	Reference     *Identity
	ReferenceSize uint64
	// MergeDeadline is how long the head of a contiguous stream may wait for
	// more of it while something of it is in flight: 0 (requests that come
	// together are merged all the same), up to MaxMergeDeadline, MergeAuto, or
	// MergeOff.
	MergeDeadline time.Duration
	// MergeLearned is what MergeAuto found for this volume before, where it begins;
	// Learned, if set, is told what it finds, by a goroutine that may wait for it.
	MergeLearned time.Duration
	Learned      func(time.Duration)
	// Failback is FailbackImmediate, FailbackManual, or a time.
	Failback time.Duration
	// Patient: Open does not give up while its context lives.
	Patient bool
	// Turn, if set, is waited for before each attempt to bring a path up, and the
	// function it returns is called after it: who shares portals with many others
	// must not meet them all at once. urgency says how much the device needs that
	// path now; it may be asked at any time, by any goroutine.
	Turn func(ctx context.Context, path string, urgency func() Urgency) (leave func(), err error)
	// Claim, if set, is asked for every incarnation that was found to lead to the
	// volume (I1), before it carries anything, and after each later look at it: an
	// error ends the incarnation. It is how a reservation keeps others out, and this
	// device when another has taken it (I9). Evidence about reservations stops a
	// path until then.
	Claim func(ctx context.Context, q Queue) error
	// Jitter, if set, draws a path's pauses, from 0 to below: for simulators that
	// repeat themselves.
	Jitter func(path string, below time.Duration) time.Duration
	// Events is told of transitions. It is called from control goroutines and
	// must not block.
	Events func(Event)
	// Grown is told the new size when all paths agree on a larger one.
	Grown func(size uint64)
}

// Modes of a device; see refusal.
const (
	modeNoPath   = 1 << iota // noPathTimeout ran out
	modeShutdown             // fails everything that is not on a wire
	modePoison               // the next flush fails once (I4)
)

// Device is one block device over several paths.
type Device struct {
	cfg  Config
	base time.Time // of now
	// selector is written by SetSelector, read per batch: a stale one picks for
	// one batch more.
	selector atomic.Pointer[pathsel.Selector]
	doubt    doubts
	ledger   *ledger
	guardOff bool // tests: I3's guard switched off, to see the test fail

	// Read per batch or per request, written on transitions.
	table   atomic.Pointer[table]
	mode    atomic.Uint32
	size    atomic.Uint64
	lanes   [MaxLanes]atomic.Pointer[Lane]
	laneTop atomic.Int32 // lanes ever used: loads beyond it are zero

	// resting: the judge sleeps until there is traffic. Set by the judge,
	// cleared by a lane that sends; judgeWake then has a token.
	resting   atomic.Bool
	judgeWake chan struct{}

	// unflushed: a write was answered since the last flush began; flushing:
	// flushes under way (I4). Written by path readers, read on evidence.
	unflushed atomic.Bool
	flushing  atomic.Int64
	cacheWB   atomic.Bool // the device has a volatile cache
	cache     cacheMark   // the same, for the next process

	// deadline is the merge deadline in force, ns, or mergeOff. Written by
	// SetMergeDeadline and the tuner, read per batch: a stale one merges a
	// moment longer.
	deadline atomic.Int64
	tuning   atomic.Bool // the tuner is to decide
	trying   atomic.Bool // what it decided is no decision yet
	tuneWake chan struct{}

	// up counts live paths, for Urgency: written under mu, a stale read is a
	// turn taken a little early or late.
	up atomic.Int32

	// mu is the control lock: everything below.
	mu        sync.Mutex
	paths     []*Path
	reference *Identity // set by the first path that joined
	incs      uint32
	noPath    *time.Timer
	tier      tier          // of the group in use
	failback  *time.Timer   // running while a better group waits
	joined    chan struct{} // closed when MinPaths were live once
	everUp    int
	hopeless  chan struct{} // every path's last attempt was hopeless
	closed    bool

	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Open brings up a device over the given transports and returns once MinPaths
// of them are live; the others go on trying. When ctx ends first, or no path
// has any hope (ErrDefinite), the error names every path and its cause.
func Open(ctx context.Context, cfg Config, transports []Transport) (*Device, error) {
	if len(transports) == 0 || len(transports) > MaxPaths {
		return nil, fmt.Errorf("volume %s: %d paths given, 1 to %d are possible", cfg.Name, len(transports), MaxPaths)
	}
	if cfg.MinPaths < 1 {
		cfg.MinPaths = 1
	}
	if cfg.MinPaths > len(transports) {
		return nil, fmt.Errorf("volume %s: minPaths is %d, but only %d paths are given", cfg.Name, cfg.MinPaths, len(transports))
	}
	d, err := newDevice(cfg)
	if err != nil {
		return nil, err
	}
	run, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	for i, tr := range transports {
		p := &Path{dev: d, tr: tr, index: i, wake: make(chan struct{}, 1), state: Connecting, stateSince: time.Now()}
		d.paths = append(d.paths, p)
	}
	d.inherit()
	for _, p := range d.paths {
		d.wg.Add(1)
		go p.run(run)
	}
	d.wg.Go(func() { d.tuneMerge(run) })
	d.wg.Go(func() { d.judgePaths(run) })
	select {
	case <-d.joined:
		return d, nil
	case <-ctx.Done():
		err = d.openError(ctx.Err())
	case <-d.giveUp():
		err = d.openError(nil)
	}
	cancel()
	d.wg.Wait()
	d.doubt.end()
	return nil, err
}

// giveUp tells when Open has no reason to wait any longer.
func (d *Device) giveUp() <-chan struct{} {
	if d.cfg.Patient {
		return nil
	}
	return d.hopeless
}

// now is a monotonic clock, ns.
func (d *Device) now() int64 { return int64(time.Since(d.base)) }

func newDevice(cfg Config) (*Device, error) {
	if cfg.CommandTimeout == 0 {
		cfg.CommandTimeout = 30 * time.Second
	}
	d := &Device{cfg: cfg, base: time.Now(), judgeWake: make(chan struct{}, 1), tuneWake: make(chan struct{}, 1), tier: tierNone,
		joined: make(chan struct{}), hopeless: make(chan struct{}, 1)}
	if cfg.Selector == nil {
		cfg.Selector = pathsel.ServiceTime{}
	}
	d.SetSelector(cfg.Selector)
	if err := d.SetMergeDeadline(cfg.MergeDeadline); err != nil {
		return nil, err
	}
	if cfg.Reference != nil {
		ref := *cfg.Reference
		d.reference = &ref
		d.size.Store(cfg.ReferenceSize)
	}
	d.doubt.dev = d
	d.table.Store(&table{})
	var err error
	if d.ledger, err = newLedger(cfg.Ledger); err != nil {
		return nil, fmt.Errorf("volume %s: %w", cfg.Name, err)
	}
	return d, nil
}

func (d *Device) openError(cause error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	errs := make([]error, 0, len(d.paths))
	for _, p := range d.paths {
		err := p.lastErr
		if err == nil {
			err = cause
		}
		errs = append(errs, fmt.Errorf("path %s: %w", p.tr.Name(), err))
	}
	return fmt.Errorf("volume %s: %d of %d needed paths came up: %w",
		d.cfg.Name, d.everUp, d.cfg.MinPaths, errors.Join(errs...))
}

// Size is the device's size in bytes.
func (d *Device) Size() uint64 { return d.size.Load() }

// Limits returns what the device as a whole can do: the least of its paths'.
func (d *Device) Limits() blk.Limits {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.limitsLocked()
}

func (d *Device) limitsLocked() blk.Limits {
	var out blk.Limits
	for _, p := range d.paths {
		if p.seen == nil {
			continue
		}
		if out.BlockSize == 0 {
			out = p.seen.Limits
			continue
		}
		out = narrower(out, p.seen.Limits)
	}
	out.Size = d.size.Load()
	out.ReadOnly = out.ReadOnly || d.cfg.ReadOnly
	return out
}

func narrower(a, b blk.Limits) blk.Limits {
	a.PhysicalBlock = max(a.PhysicalBlock, b.PhysicalBlock)
	a.OptimalIO = max(a.OptimalIO, b.OptimalIO)
	a.UnmapGranule = max(a.UnmapGranule, b.UnmapGranule)
	a.MaxUnmap = min(a.MaxUnmap, b.MaxUnmap)
	a.ZeroUnmaps = a.ZeroUnmaps && b.ZeroUnmaps
	a.WriteCache = a.WriteCache || b.WriteCache
	a.FUA = a.FUA && b.FUA
	a.ReadOnly = a.ReadOnly || b.ReadOnly
	return a
}

// OpenLane makes a lane for a new client connection with up to depth requests
// outstanding (1 to MaxDepth).
func (d *Device) OpenLane(depth int) (*Lane, error) {
	if depth < 1 || depth > MaxDepth {
		return nil, fmt.Errorf("volume %s: lane depth %d is not within 1 to %d", d.cfg.Name, depth, MaxDepth)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("volume %s: is being closed", d.cfg.Name)
	}
	for i := range d.lanes {
		if d.lanes[i].Load() == nil {
			l := newLane(d, uint32(i), depth)
			d.lanes[i].Store(l)
			d.laneTop.Store(max(d.laneTop.Load(), int32(i)+1))
			return l, nil
		}
	}
	return nil, fmt.Errorf("volume %s: all %d lanes are in use: close a client connection first", d.cfg.Name, MaxLanes)
}

func newLane(d *Device, id uint32, depth int) *Lane {
	l := &Lane{dev: d, id: id, slots: newSlots(depth), entries: d.ledger.lane(id, depth)}
	l.pick.Home(int(id))
	l.plug.Init(d.unitLimit())
	l.plugged = make([]*slot, 0, merge.Streams)
	l.dirty = make([]*live, 0, MaxPaths)
	l.again = make([]*slot, 0, depth)
	l.timer = time.AfterFunc(time.Hour, l.kick)
	l.timer.Stop()
	return l
}

func (d *Device) freeLane(l *Lane) {
	l.timer.Stop()
	d.lanes[l.id].CompareAndSwap(l, nil)
}

func (d *Device) slotOf(c *blk.Command) *slot {
	return d.lanes[c.Lane].Load().slots.at(c.Slot)
}

// kickAll runs every lane: a path came, or a policy changed.
func (d *Device) kickAll() {
	for i := range d.lanes[:d.laneTop.Load()] {
		if l := d.lanes[i].Load(); l != nil {
			l.kick()
		}
	}
}

// writeInFlight reports whether a write-class request other than s that
// overlaps it is in flight. Under the doubt registry's lock.
func (d *Device) writeInFlight(s *slot) bool {
	for i := range d.lanes[:d.laneTop.Load()] {
		l := d.lanes[i].Load()
		if l == nil {
			continue
		}
		for k := range l.entries {
			if (l != s.lane || uint32(k) != s.index) && l.entries[k].overlaps(s.req.Off, s.req.End()) {
				return true
			}
		}
	}
	return false
}

// orphaned reports whether a write-class request of a connection that is gone
// overlaps r and is still on a wire: its client knows nothing of it any more,
// and it may land whenever it likes. Under the doubt registry's lock.
func (d *Device) orphaned(r *blk.Request) bool {
	for i := range d.lanes[:d.laneTop.Load()] {
		l := d.lanes[i].Load()
		if l == nil || !l.closed.Load() {
			continue
		}
		for k := range l.entries {
			if l.entries[k].overlaps(r.Off, r.End()) {
				return true
			}
		}
	}
	return false
}

// wakeDoubt lets waiting retries look again. One load while nothing is in doubt.
func (d *Device) wakeDoubt() {
	if d.doubt.active.Load() != 0 {
		d.doubt.wake()
	}
}
