package target

import (
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// Server serves a Machine on TCP. All methods may be called from any goroutine.
type Server struct {
	*serve.Server
	m *Machine
}

// New builds a target without portals.
func New(cfg Config) (*Server, error) {
	m, err := NewMachine(cfg)
	if err != nil {
		return nil, err
	}
	return &Server{serve.New(m), m}, nil
}

// Do runs f with the machine, and sends what it causes.
func (s *Server) Do(f func(m *Machine)) { s.Enter(func() { f(s.m) }) }

// Stats reads the counters.
func (s *Server) Stats() (v Stats) {
	s.Look(func() { v = s.m.Stats() })
	return v
}

// Answer answers the commands of match with status and sense, unexecuted.
func (s *Server) Answer(match Match, status byte, sense scsi.Sense) error {
	return s.change(func(m *Machine) error { return m.Answer(match, status, sense) })
}

// SetDevice makes a LUN another device at one portal (0: at all).
func (s *Server) SetDevice(portal int, lun uint32, d Device) error {
	return s.change(func(m *Machine) error { return m.SetDevice(portal, lun, d) })
}

// SetALUA changes the state of a target port group.
func (s *Server) SetALUA(group uint16, state scsi.AccessState) {
	s.Do(func(m *Machine) { m.SetALUA(group, state) })
}

// Attention queues a unit attention on the sessions of a portal (0: all).
func (s *Server) Attention(portal int, lun uint32, sense scsi.Sense) {
	s.Do(func(m *Machine) { m.Attention(portal, lun, sense) })
}

// change runs f with the machine and returns what it says.
func (s *Server) change(f func(m *Machine) error) error {
	return s.Change(func() error { return f(s.m) })
}

// changeAndWait is serve's ChangeAndWait for tasks of this protocol.
func (s *Server) changeAndWait(match func(m *Machine, t *task) bool, f func(m *Machine) error) error {
	return s.ChangeAndWait(tasks(func(t *task) bool { return match(s.m, t) }), func() error { return f(s.m) })
}

// AddLUN is Machine.AddLUN.
func (s *Server) AddLUN(l LUN) error {
	return s.change(func(m *Machine) error { return m.AddLUN(l) })
}

// RemoveLUN is Machine.RemoveLUN; then nothing uses the LUN's store any more.
func (s *Server) RemoveLUN(n uint32) error {
	return s.changeAndWait(func(m *Machine, t *task) bool { return t.unit != m.units[t.unit.Number] },
		func(m *Machine) error { return m.RemoveLUN(n) })
}

// SetMode is Machine.SetMode.
func (s *Server) SetMode(n uint32, readOnly, writeThrough, thick bool) error {
	return s.change(func(m *Machine) error { return m.SetMode(n, readOnly, writeThrough, thick) })
}

// SetAccess is Machine.SetAccess; then nothing of those put out runs any more.
func (s *Server) SetAccess(initiators []string, c auth.Credentials) error {
	return s.changeAndWait((*Machine).banned, func(m *Machine) error { return m.SetAccess(initiators, c) })
}

// SetGrants is Machine.SetGrants; when over is closed, nothing of those put out,
// nor a write of those that may only read, runs any more. It waits for nothing.
func (s *Server) SetGrants(grants map[string]Grant) (changed bool, over <-chan struct{}, err error) {
	over, err = s.ChangeAndTell(tasks(s.m.banned), func() (err error) {
		changed, err = s.m.SetGrants(grants)
		return err
	})
	return changed, over, err
}

// Granted is Machine.Granted.
func (s *Server) Granted() (out []string) {
	s.Look(func() { out = s.m.Granted() })
	return out
}

// Attached is Machine.Attached.
func (s *Server) Attached() (out []serve.Attached) {
	s.Look(func() { out = s.m.Attached() })
	return out
}

// SetDepth is Machine.SetDepth.
func (s *Server) SetDepth(depth int) error {
	return s.change(func(m *Machine) error { return m.SetDepth(depth) })
}

// Grow makes a LUN's store and the LUN size bytes long. Smaller than it is, or
// a store that cannot grow, is an error and changes nothing. Nothing else runs
// on the target meanwhile.
func (s *Server) Grow(n uint32, size uint64) error {
	return s.change(func(m *Machine) error {
		u := m.units[n]
		if u == nil {
			return fmt.Errorf("target %s: no LUN %d", m.cfg.Name, n)
		}
		if err := GrowStore(u.Store, u.Size, size, u.BlockSize); err != nil {
			return fmt.Errorf("target %s LUN %d: %w", m.cfg.Name, n, err)
		}
		return m.Resize(n, size)
	})
}
