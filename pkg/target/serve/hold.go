package serve

import "time"

// Hold is a hold on a Server's commands; see Core.Hold.
type Hold struct {
	s       *Server
	h       *Held
	arrived chan struct{}
}

// Hold keeps the commands of match from executing; see Core.Hold for late.
func (s *Server) Hold(match Match, late bool) (*Hold, error) {
	h := &Hold{s: s, arrived: make(chan struct{}, maxLate)}
	var err error
	s.Enter(func() {
		h.h, err = s.core.Hold(match, late, func() {
			select {
			case h.arrived <- struct{}{}:
			default:
			}
		})
	})
	return h, err
}

// Arrived gives one value for each command that was held.
func (h *Hold) Arrived() <-chan struct{} { return h.arrived }

// Len is how many commands are held now.
func (h *Hold) Len() (n int) {
	h.s.Enter(func() { n = h.h.Len() })
	return n
}

// Release ends the hold and executes what it held.
func (h *Hold) Release() { h.s.Enter(func() { h.h.Release() }) }

// Drop ends the hold and what it held.
func (h *Hold) Drop() { h.s.Enter(func() { h.h.Drop() }) }

// Delay executes the commands of match d later.
func (s *Server) Delay(match Match, d time.Duration) error {
	return s.Change(func() error { return s.core.Delay(match, d) })
}

// DropAnswer executes the commands of match and never answers them.
func (s *Server) DropAnswer(match Match) error {
	return s.Change(func() error { return s.core.DropAnswer(match) })
}

// Kept are the answers of a Server that SpoilAnswers keeps.
type Kept struct {
	s *Server
	l *Letters
}

// SpoilAnswers twists the answers of the commands of match; see
// Core.SpoilAnswers.
func (s *Server) SpoilAnswers(match Match, w Twist) (k *Kept, err error) {
	k = &Kept{s: s}
	s.Enter(func() { k.l, err = s.core.SpoilAnswers(match, w) })
	return k, err
}

// Len is how many answers are kept now.
func (k *Kept) Len() (n int) {
	k.s.Enter(func() { n = k.l.Len() })
	return n
}

// Release ends the fault and sends what it kept.
func (k *Kept) Release() { k.s.Enter(func() { k.l.Release() }) }

// ClearFaults ends all faults; what is held is released.
func (s *Server) ClearFaults() { s.Enter(s.core.ClearFaults) }
