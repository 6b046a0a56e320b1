package wire

import "time"

// Watchdog decides from what the ticker sees whether the path is alive. Pure.
// Any received byte counts as life, so a slow command is no dead path.
type Watchdog struct {
	Path   time.Duration // no byte for so long while something is outstanding: dead
	Idle   time.Duration // a ping after so long without a byte and without work; 0: never
	heard  time.Duration // when a byte, or a ping of ours, was last noticed
	probes uint64        // 1 + received when an idle path was pinged; 0: it was not
	calm   bool          // all that came was the answer to that
	alive  time.Duration // when life, or nothing outstanding, was last seen
	last   time.Duration // the last tick
	seen   uint64
	pinged bool
}

// Watched is what a tick found.
type Watched uint8

// What the ticker does about the path.
const (
	WatchOK Watched = iota
	WatchPing
	WatchDead
)

// starved is a gap between ticks that says that this process, not the path,
// stood still (a suspended machine): the gap does not count.
const starved = time.Second

// Tick looks at the number of receives so far.
func (w *Watchdog) Tick(now time.Duration, received uint64, outstanding bool) Watched {
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
	if w.Idle > 0 && now-w.heard >= w.Idle {
		w.heard, w.alive, w.probes = now, now, received+1
		return WatchPing
	}
	if !outstanding || received != w.seen {
		w.alive, w.seen, w.pinged = now, received, false
		return WatchOK
	}
	idle := now - w.alive
	switch {
	case idle >= w.Path:
		return WatchDead
	case idle >= w.Path/2 && !w.pinged:
		w.pinged = true
		return WatchPing
	}
	return WatchOK
}

// Quiet is how long after a tick at now there is nothing to do, if nothing is
// outstanding.
func (w *Watchdog) Quiet(now time.Duration) time.Duration {
	if w.heard == now && !w.calm || w.Idle == 0 {
		return 0 // there was traffic: more may come
	}
	return w.heard + w.Idle - now
}
