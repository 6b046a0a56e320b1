package iscsi

import (
	"fmt"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/wire"
)

// ticker is the ticker goroutine: timeouts and pings. It ticks while something
// is outstanding, and sleeps from one keep-alive to the next otherwise.
func (s *Session) ticker() {
	w := wire.Watchdog{Path: s.cfg.PathTimeout, Idle: idlePeriod(s.cfg.ISID)}
	var shut stuck
	t := time.NewTimer(wire.TickInterval)
	defer t.Stop()
	for {
		select {
		case <-s.link.Quit():
			return
		case <-t.C:
		case <-s.m.Clock.Wake:
		}
		now := time.Since(s.base)
		tick := s.m.Clock.Tick(now)
		s.watch(&w, now)
		if shut.tick(now, s.m.tx.shut.Load(), s.cfg.CommandTimeout) {
			s.Fail(fmt.Errorf("%w: the target kept its command window shut", ErrCommandTimeout))
		}
		if s.m.Tasks.TooOld(tick, wire.Ticks(s.cfg.CommandTimeout), wire.Ticks(abortTimeout)) {
			s.m.reviewWanted.Store(true)
			s.link.Wake()
		}
		s.goodbye(tick)
		t.Reset(s.m.Clock.Rest(w.Quiet(now)))
	}
}

// idlePeriod is idlePing, shortened by up to a quarter, differently for each
// session: thousands of them must not ping at once.
func idlePeriod(isid [6]byte) time.Duration {
	return idlePing - idlePing/4*time.Duration(isid[5])/256
}

func (s *Session) watch(w *wire.Watchdog, now time.Duration) {
	switch w.Tick(now, s.m.Received(), s.m.Tasks.Outstanding()) {
	case wire.WatchPing:
		if c := s.m.newControl(ctlPing); c != nil {
			s.m.queue(c)
			s.link.Kick()
		}
	case wire.WatchDead:
		s.Fail(fmt.Errorf("%w (%v)", ErrPathTimeout, s.cfg.PathTimeout))
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
		s.Fail(ErrLogoutRequested)
		return
	}
	if !s.m.Tasks.Idle() || s.byes.Swap(1) != 0 {
		return
	}
	if c := s.m.newControl(ctlLogout); c != nil {
		c.OnDone = func() { s.Fail(ErrLogoutRequested) }
		s.m.queue(c)
		s.link.Kick()
	}
}

// stuck notices a command window that stays shut.
type stuck struct {
	shut  uint64
	since time.Duration
}

// tick reports whether the same command has waited for the window for limit.
func (s *stuck) tick(now time.Duration, shut uint64, limit time.Duration) bool {
	if shut == 0 || shut != s.shut {
		s.shut, s.since = shut, now
		return false
	}
	return now-s.since >= limit
}
