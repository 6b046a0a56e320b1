package poll

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// Polling says how long a reader looks again and again at an empty socket
// before it parks (S5): answers that come soon are then taken without a
// wake-up. 0 parks at once; a positive value is a fixed time; PollAdaptive
// looks as long as it pays.
type Polling time.Duration

// PollAdaptive and the bounds of a fixed time.
const (
	PollAdaptive Polling = -1
	MaxPolling           = Polling(time.Millisecond)
)

// Of adaptive polling.
const (
	spinFirst = 10 * time.Microsecond  // the first window
	spinMax   = 200 * time.Microsecond // the longest: beyond it a wake-up costs little
	// stolen: one look that took so long says that another thread had the CPU.
	stolen = 50 * time.Microsecond
	// shyMin and shyMax bound the pause after that; it doubles while it happens.
	shyMin = 10 * time.Millisecond
	shyMax = 10 * time.Second
)

// spin decides how long to look. Pure: the reader has the clock. Reader's own.
//
// The window follows what the waits were: one that ended within the window, or
// a little after it, keeps or doubles it; one that took longer than spinMax
// halves it, down to nothing. No spare CPU shows in a look that took far longer
// than a look takes.
type spin struct {
	window time.Duration
	shy    time.Duration // the pause after the CPU was stolen
	until  time.Duration // no looking before
}

// budget is how long to look at now.
func (s *spin) budget(p Polling, now time.Duration) time.Duration {
	switch {
	case p >= 0:
		return time.Duration(p)
	case now < s.until:
		return 0
	}
	return s.window
}

// waited takes note of a wait that has ended: all of it, looked or parked.
func (s *spin) waited(t time.Duration) {
	switch {
	case t > spinMax:
		if s.window /= 2; s.window < spinFirst {
			s.window = 0
		}
	case t > s.window:
		s.window = min(max(2*s.window, spinFirst), spinMax)
	}
}

// lookTook takes note of how long one look took; false: stop looking.
func (s *spin) lookTook(t, now time.Duration) bool {
	if t < stolen {
		return true
	}
	s.shy = min(max(2*s.shy, shyMin), shyMax)
	s.until = now + s.shy
	return false
}

// calm forgets a theft once looking went well for as long as the last pause.
func (s *spin) calm(now time.Duration) {
	if s.shy > 0 && now > s.until+s.shy {
		s.shy = 0
	}
}

// spinning counts the readers that look right now. There are never more than
// one less than CPUs, so that whoever brings the bytes has one.
var spinning atomic.Int32

func mayLook() bool {
	if spinning.Add(1) < int32(runtime.GOMAXPROCS(0)) {
		return true
	}
	spinning.Add(-1)
	return false
}

// SetPolling changes how the reader waits. Any goroutine.
func (s *Socket) SetPolling(p Polling) { s.polling.Store(int64(p)) }

// Polling is how the reader waits. Any goroutine.
func (s *Socket) Polling() Polling { return Polling(s.polling.Load()) }

// recvSpinning is Recv for a reader that polls: it looks first, then parks.
func (s *Socket) recvSpinning(p Polling) error {
	s.rxNow = true
	err := s.raw.Read(s.rxFunc)
	if err != nil || s.rxErr != syscall.EAGAIN {
		s.rxNow = false
		return err
	}
	start := time.Since(s.base)
	now := start
	if budget := s.spin.budget(p, start); budget > 0 && mayLook() {
		for end := start + budget; now < end; {
			if err = s.raw.Read(s.rxFunc); err != nil || s.rxErr != syscall.EAGAIN {
				break
			}
			last := now
			if now = time.Since(s.base); !s.spin.lookTook(now-last, now) {
				break
			}
		}
		spinning.Add(-1)
	}
	s.rxNow = false
	if err == nil && s.rxErr == syscall.EAGAIN {
		err = s.raw.Read(s.rxFunc)
	} else {
		s.Stats.Spun.Add(1)
	}
	now = time.Since(s.base)
	s.spin.waited(now - start)
	s.spin.calm(now)
	return err
}
