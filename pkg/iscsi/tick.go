package iscsi

import (
	"fmt"
	"time"
)

// ticker is the ticker goroutine: timeouts and pings.
func (s *Session) ticker() {
	w := watchdog{path: s.cfg.PathTimeout}
	var shut stuck
	t := time.NewTicker(tickInterval)
	defer t.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-t.C:
		}
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
	}
}

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
