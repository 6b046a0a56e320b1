package target

import (
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// Hold is a hold on a Server's commands; see Machine.Hold.
type Hold struct {
	s       *Server
	h       *Held
	arrived chan struct{}
}

// Hold keeps the commands of match from executing; see Machine.Hold for late.
func (s *Server) Hold(match Match, late bool) (*Hold, error) {
	h := &Hold{s: s, arrived: make(chan struct{}, maxLate)}
	var err error
	s.Do(func(m *Machine) {
		h.h, err = m.Hold(match, late, func() {
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
	h.s.Do(func(*Machine) { n = h.h.Len() })
	return n
}

// Release ends the hold and executes what it held.
func (h *Hold) Release() { h.s.Do(func(*Machine) { h.h.Release() }) }

// Drop ends the hold and what it held.
func (h *Hold) Drop() { h.s.Do(func(*Machine) { h.h.Drop() }) }

// Delay executes the commands of match d later.
func (s *Server) Delay(match Match, d time.Duration) (err error) {
	s.Do(func(m *Machine) { err = m.Delay(match, d) })
	return err
}

// DropAnswer executes the commands of match and never answers them.
func (s *Server) DropAnswer(match Match) (err error) {
	s.Do(func(m *Machine) { err = m.DropAnswer(match) })
	return err
}

// Answer answers the commands of match with status and sense, unexecuted.
func (s *Server) Answer(match Match, status byte, sense scsi.Sense) (err error) {
	s.Do(func(m *Machine) { err = m.Answer(match, status, sense) })
	return err
}

// Kept are the answers of a Server that SpoilAnswers keeps.
type Kept struct {
	s *Server
	l *Letters
}

// SpoilAnswers twists the answers of the commands of match; see
// Machine.SpoilAnswers.
func (s *Server) SpoilAnswers(match Match, w Twist) (k *Kept, err error) {
	k = &Kept{s: s}
	s.Do(func(m *Machine) { k.l, err = m.SpoilAnswers(match, w) })
	return k, err
}

// Len is how many answers are kept now.
func (k *Kept) Len() (n int) {
	k.s.Do(func(*Machine) { n = k.l.Len() })
	return n
}

// Release ends the fault and sends what it kept.
func (k *Kept) Release() { k.s.Do(func(*Machine) { k.l.Release() }) }

// ClearFaults ends all faults; what is held is released.
func (s *Server) ClearFaults() { s.Do((*Machine).ClearFaults) }

// SetDevice makes a LUN another device at one portal (0: at all).
func (s *Server) SetDevice(portal int, lun uint32, d Device) (err error) {
	s.Do(func(m *Machine) { err = m.SetDevice(portal, lun, d) })
	return err
}

// SetALUA changes the state of a target port group.
func (s *Server) SetALUA(group uint16, state scsi.AccessState) {
	s.Do(func(m *Machine) { m.SetALUA(group, state) })
}

// Attention queues a unit attention on the sessions of a portal (0: all).
func (s *Server) Attention(portal int, lun uint32, sense scsi.Sense) {
	s.Do(func(m *Machine) { m.Attention(portal, lun, sense) })
}
