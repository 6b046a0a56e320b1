package iscsi

import "time"

// watchdog decides from what the ticker sees whether the path is alive. Pure.
// Any received byte counts as life, so a slow command is no dead path.
type watchdog struct {
	path   time.Duration // Config.PathTimeout
	idle   time.Duration // a ping after so long without a byte and without work; 0: never
	heard  time.Duration // when a byte, or a ping of ours, was last noticed
	probes uint64        // 1 + received when an idle path was pinged; 0: it was not
	calm   bool          // all that came was the answer to that
	alive  time.Duration // when life, or nothing outstanding, was last seen
	last   time.Duration // the last tick
	seen   uint64
	pinged bool
}

type watchResult uint8

const (
	watchOK watchResult = iota
	watchPing
	watchDead
)

// starved is a gap between ticks that says that this process, not the path,
// stood still (a suspended machine): the gap does not count.
const starved = time.Second

// tick looks at the number of receives so far.
func (w *watchdog) tick(now time.Duration, received uint64, outstanding bool) watchResult {
	if gap := now - w.last; gap > starved {
		w.alive += gap
	}
	w.last = now
	w.calm = false
	if received != w.seen || outstanding {
		w.heard = now
		w.calm = !outstanding && received == w.probes
	}
	if !outstanding {
		w.probes = 0
	}
	if w.idle > 0 && now-w.heard >= w.idle {
		w.heard, w.alive, w.probes = now, now, received+1
		return watchPing
	}
	if !outstanding || received != w.seen {
		w.alive, w.seen, w.pinged = now, received, false
		return watchOK
	}
	idle := now - w.alive
	switch {
	case idle >= w.path:
		return watchDead
	case idle >= w.path/2 && !w.pinged:
		w.pinged = true
		return watchPing
	}
	return watchOK
}

// quiet is how long after a tick at now there is nothing to do, if nothing is
// outstanding.
func (w *watchdog) quiet(now time.Duration) time.Duration {
	if w.heard == now && !w.calm || w.idle == 0 {
		return 0 // there was traffic: more may come
	}
	return w.heard + w.idle - now
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

// tooOld reports whether a task has been on the wire long enough for the
// reader to look at it. Ticker.
func (t *tasks) tooOld(now, commandTicks, abortTicks uint32) bool {
	for i := range t.table {
		live := t.table[i].live.Load()
		if live == 0 {
			continue
		}
		limit := commandTicks
		if i >= t.base {
			limit = min(commandTicks, abortTicks)
		}
		if now-uint32(live>>32) >= limit {
			return true
		}
	}
	return false
}
