package health

import "time"

// stream is what is told of one subject, which is at a level: 0 is well, and more is
// worse. It says when its level is to be told, so that what flaps is told of now and
// then, and what got worse than anybody was told is told soon.
type stream struct {
	level, told, worst int
	changes            int       // of level since told
	first, last        time.Time // of these changes; last may be older
	until              time.Time // nothing that is no worse is told before
	hold               time.Duration
}

// set changes the level.
func (s *stream) set(now time.Time, level int) {
	if level == s.level {
		return
	}
	if now.Sub(s.last) > calmAfter {
		s.hold, s.until, s.worst, s.changes = holdFirst, time.Time{}, s.told, 0
	}
	if s.changes == 0 {
		s.first = now
	}
	s.level, s.last = level, now
	s.changes++
}

// due is when the level is to be told; never if it is what was told.
func (s *stream) due() (at time.Time, ever bool) {
	at = s.first.Add(gatherFor)
	if s.level <= s.worst && s.until.After(at) {
		at = s.until
	}
	return at, s.level != s.told
}

// tell notes that the level is told.
func (s *stream) tell(now time.Time) {
	s.until = now.Add(s.hold)
	s.hold = min(2*s.hold, holdMost)
	s.accept()
}

// accept takes the level for told: nobody needs to be.
func (s *stream) accept() {
	s.told, s.worst, s.changes = s.level, max(s.worst, s.level), 0
}
