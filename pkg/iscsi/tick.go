package iscsi

import (
	"fmt"
	"time"
)

// ticker is the ticker goroutine: timeouts and pings. It ticks while something
// is outstanding, and sleeps from one keep-alive to the next otherwise.
func (s *Session) ticker() {
	w := watchdog{path: s.cfg.PathTimeout, idle: idlePeriod(s.cfg.ISID)}
	var shut stuck
	t := time.NewTimer(tickInterval)
	defer t.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-t.C:
		case <-s.m.wakeTicker:
		}
		s.m.asleep.Store(false)
		now := time.Since(s.base)
		s.m.tick.Store(uint32(now / tickInterval))
		s.watch(&w, now)
		if shut.tick(now, s.m.tx.shut.Load(), s.cfg.CommandTimeout) {
			s.fail(fmt.Errorf("%w: the target kept its command window shut", ErrCommandTimeout))
		}
		if s.m.tasks.tooOld(uint32(now/tickInterval), ticks(s.cfg.CommandTimeout), ticks(abortTimeout)) {
			s.m.reviewWanted.Store(true)
			s.wakeReader()
		}
		s.goodbye(uint32(now / tickInterval))
		t.Reset(s.m.rest(w.quiet(now)))
	}
}

// idlePeriod is idlePing, shortened by up to a quarter, differently for each
// session: thousands of them must not ping at once.
func idlePeriod(isid [6]byte) time.Duration {
	return idlePing - idlePing/4*time.Duration(isid[5])/256
}

// rest says how long the ticker may sleep: until quiet has passed when nothing
// is going on, a tick otherwise. Ticker only.
func (m *machine) rest(quiet time.Duration) time.Duration {
	if quiet <= tickInterval || m.busy() {
		return tickInterval
	}
	m.asleep.Store(true)
	if m.busy() { // it began meanwhile, and may not have seen asleep
		m.asleep.Store(false)
		return tickInterval
	}
	return quiet
}

// busy reports whether the ticker has something to watch.
func (m *machine) busy() bool { return m.tasks.outstanding() || m.leaving.Load() != 0 }

// rouse wakes a sleeping ticker if there is something to watch, and sets the
// coarse clock, which stood still. Whoever sends calls it before it stamps a
// task, the reader when the target wants to leave.
func (m *machine) rouse() {
	if !m.busy() || !m.asleep.CompareAndSwap(true, false) {
		return
	}
	m.setTick()
	select {
	case m.wakeTicker <- struct{}{}:
	default:
	}
}

func (m *machine) setTick() { m.tick.Store(uint32(time.Duration(m.clock()) / tickInterval)) }

func (s *Session) watch(w *watchdog, now time.Duration) {
	switch w.tick(now, s.m.received.Load(), s.m.tasks.outstanding()) {
	case watchPing:
		if c := s.m.newControl(ctlPing); c != nil {
			s.m.queue(c)
			s.kick()
		}
	case watchDead:
		s.fail(fmt.Errorf("%w (%v)", ErrPathTimeout, s.cfg.PathTimeout))
	}
}

// goodbye ends a session the target wants to end: when its units are idle, or
// at the deadline.
func (s *Session) goodbye(now uint32) {
	by := s.m.leaving.Load()
	if by == 0 {
		return
	}
	if int32(now-by) >= 0 {
		s.fail(ErrLogoutRequested)
		return
	}
	if s.m.tasks.data.Free() != s.m.tasks.data.Depth() || s.byes.Swap(1) != 0 {
		return
	}
	if c := s.m.newControl(ctlLogout); c != nil {
		c.onDone = func() { s.fail(ErrLogoutRequested) }
		s.m.queue(c)
		s.kick()
	}
}
