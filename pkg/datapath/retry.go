package datapath

import (
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// judge decides what becomes of a request whose wave ended. Runner only.
//
// A reservation conflict is the last word, except where this node holds the volume: the
// path stopped with it (stopping) and looks who has it. If that is another, the device
// fails all it has; if it is still us, the conflict was of a moment (LIO, while nodes
// come and go), and what was refused was not executed, so it is sent again.
func (l *Lane) judge(s *slot) {
	v := unpack(s.result.Load())
	if v.Class == blk.Good {
		l.retry(s) // its next wave
		return
	}
	lv := s.lv
	s.again, s.heldAt = true, 0
	s.sent, s.synced = 0, false // the whole request again: a part alone could be split by a newer write
	s.tries++
	switch v.Class {
	case blk.PathLost:
		l.elsewhere(s)
	case blk.WrongState:
		l.dev.demote(lv)
		l.elsewhere(s)
	case blk.LUNGone:
		l.dev.suspend(lv)
		l.elsewhere(s)
	case blk.Retry, blk.Aborted:
		if s.tries <= sameRetries && v.After == 0 {
			l.retry(s)
			return
		}
		l.retryLater(s, v)
	case blk.Busy:
		lv.shrink()
		l.retryLater(s, v)
	case blk.RetryLater:
		s.avoid = lv
		l.retryLater(s, v)
	case blk.OtherPathOnce:
		if s.hardware || len(l.dev.table.Load().best()) < 2 {
			l.reply(s, v.Status)
			return
		}
		s.hardware, s.avoid = true, lv
		l.retry(s)
	default:
		if v.Status == blk.Conflict && l.dev.cfg.Claim != nil {
			l.retryLater(s, v) // the path has stopped, and is asked whose the volume is
			return
		}
		l.reply(s, v.Status)
	}
}

// elsewhere sends a request again that its path, not the device, has failed.
// What the device is asked to put up with is counted anew.
func (l *Lane) elsewhere(s *slot) {
	s.since, s.delay = time.Time{}, 0
	l.retry(s)
}

// retryLater backs off, up to the command timeout counted from the first of
// the failures in a row that are the device's (I6). Time without any usable
// path does not count (I5), nor does what its paths failed before: a request
// that waited long for a fence is not given up for one BUSY. A target that says
// how long it wants to be left alone is left alone, but not for so long that no
// time remains to try again.
func (l *Lane) retryLater(s *slot, v blk.Verdict) {
	if l.closed.Load() {
		l.reply(s, blk.Cancelled)
		return
	}
	if s.since.IsZero() {
		s.since = time.Now()
	}
	since := s.since
	if t := l.dev.table.Load(); t.since.After(since) {
		since = t.since
	}
	if time.Since(since) > l.dev.cfg.CommandTimeout {
		if v.Status == blk.OK {
			v.Status = blk.IOError
		}
		l.reply(s, v.Status)
		return
	}
	s.delay = min(max(2*s.delay, busyDelayMin), busyDelayMax)
	asked := time.Duration(v.After) * 100 * time.Millisecond
	l.later(s, max(s.delay, min(asked, l.dev.cfg.CommandTimeout/2)))
}

// full reports whether the path's window is used up.
func (lv *live) full() bool {
	w := lv.window.Load()
	if w == 0 {
		return false
	}
	n, _ := lv.inflight()
	return int64(n) >= w
}

// shrink halves the window after BUSY or TASK SET FULL. The control loop opens
// it again step by step.
func (lv *live) shrink() {
	n, _ := lv.inflight()
	lv.window.Store(max(1, min(int64(n), 128)/2))
	lv.path.poke()
}

// widen doubles the window, and forgets it once it no longer binds. It reports
// whether it still binds.
func (lv *live) widen() bool {
	w := lv.window.Load()
	if w == 0 {
		return false
	}
	if w *= 2; w > 128 {
		w = 0
	}
	lv.window.Store(w)
	return w != 0
}
