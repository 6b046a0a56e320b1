package wire

import (
	"sync/atomic"
	"time"
)

// Clock is the coarse clock of one session or controller, and the sleep of the
// ticker that drives it: it ticks while something is outstanding, and sleeps
// until the next keep-alive otherwise.
type Clock struct {
	now  func() int64 // a monotonic clock in nanoseconds
	busy func() bool

	// tick is the time in TickIntervals. Written by the ticker, and by whoever
	// rouses it.
	tick atomic.Uint32
	// asleep: the ticker waits for the next keep-alive, nothing is outstanding.
	// Set by the ticker, which looks for work once more after it; read by the
	// sender after the tag was taken: one of them sees the other.
	asleep atomic.Bool

	Wake chan struct{} // for the ticker: it was roused. Capacity 1
}

// NewClock makes a clock over now, nanoseconds; busy reports whether the ticker
// has something to watch.
func NewClock(now func() int64, busy func() bool) *Clock {
	return &Clock{now: now, busy: busy, Wake: make(chan struct{}, 1)}
}

// Now is the coarse clock.
func (c *Clock) Now() uint32 { return c.tick.Load() }

// Tick sets the clock; the ticker is awake. Ticker only.
func (c *Clock) Tick(now time.Duration) uint32 {
	c.asleep.Store(false)
	t := uint32(now / TickInterval)
	c.tick.Store(t)
	return t
}

// Rest says how long the ticker may sleep: until quiet has passed when nothing
// is going on, a tick otherwise. Ticker only.
func (c *Clock) Rest(quiet time.Duration) time.Duration {
	if quiet <= TickInterval || c.busy() {
		return TickInterval
	}
	c.asleep.Store(true)
	if c.busy() { // it began meanwhile, and may not have seen asleep
		c.asleep.Store(false)
		return TickInterval
	}
	return quiet
}

// Rouse wakes a sleeping ticker if there is something to watch, and sets the
// clock, which stood still. Whoever sends calls it before it stamps a task.
func (c *Clock) Rouse() {
	if !c.asleep.Load() || !c.busy() || !c.asleep.CompareAndSwap(true, false) {
		return
	}
	c.Set()
	select {
	case c.Wake <- struct{}{}:
	default:
	}
}

// Asleep reports whether the ticker sleeps: then the clock stands.
func (c *Clock) Asleep() bool { return c.asleep.Load() }

// Set sets the clock to now.
func (c *Clock) Set() { c.tick.Store(uint32(time.Duration(c.now()) / TickInterval)) }

// Ticks is d in ticks, at least one.
func Ticks(d time.Duration) uint32 { return uint32(max(d/TickInterval, 1)) }
