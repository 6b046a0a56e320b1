package subsystem

import (
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// Server serves a Machine on TCP. All methods may be called from any goroutine.
type Server struct {
	*serve.Server
	m *Machine
}

// New builds a subsystem without portals.
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

// change runs f with the machine and returns what it says.
func (s *Server) change(f func(m *Machine) error) error {
	return s.Change(func() error { return f(s.m) })
}

// changeAndWait is serve's ChangeAndWait for tasks of this protocol.
func (s *Server) changeAndWait(match func(m *Machine, t *task) bool, f func(m *Machine) error) error {
	return s.ChangeAndWait(tasks(func(t *task) bool { return match(s.m, t) }), func() error { return f(s.m) })
}

// Load is Machine.Load.
func (s *Server) Load(portal int) (taken, refused uint64) {
	s.Look(func() { taken, refused = s.m.Load(portal) })
	return taken, refused
}

// Answer answers the commands of match with a status, unexecuted.
func (s *Server) Answer(match serve.Match, st nvme.Status) error {
	return s.change(func(m *Machine) error { return m.Answer(match, st) })
}

// SetDevice makes a namespace another device at one portal (0: at all).
func (s *Server) SetDevice(portal int, id uint32, d Device) error {
	return s.change(func(m *Machine) error { return m.SetDevice(portal, id, d) })
}

// NamespaceChanged is Machine.NamespaceChanged.
func (s *Server) NamespaceChanged(portal int, id uint32) {
	s.Do(func(m *Machine) { m.NamespaceChanged(portal, id) })
}

// SetANA is Machine.SetANA.
func (s *Server) SetANA(portals uint16, ana uint32, state nvme.AccessState) {
	s.Do(func(m *Machine) { m.SetANA(portals, ana, state) })
}

// AddNamespace is Machine.AddNamespace.
func (s *Server) AddNamespace(n Namespace) error {
	return s.change(func(m *Machine) error { return m.AddNamespace(n) })
}

// RemoveNamespace is Machine.RemoveNamespace; then nothing uses the store any more.
func (s *Server) RemoveNamespace(id uint32) error {
	return s.changeAndWait(func(_ *Machine, t *task) bool { return t.ns != nil && (t.ns.gone || t.cmd.Opcode == nvme.OpFlush) },
		func(m *Machine) error { return m.RemoveNamespace(id) })
}

// SetMode is Machine.SetMode.
func (s *Server) SetMode(id uint32, readOnly, writeThrough, thick bool) error {
	return s.change(func(m *Machine) error { return m.SetMode(id, readOnly, writeThrough, thick) })
}

// SetAccess is Machine.SetAccess; then nothing of those put out runs any more.
func (s *Server) SetAccess(hosts []string, all auth.Credentials, each map[string]auth.Credentials) error {
	return s.changeAndWait((*Machine).banned, func(m *Machine) error { return m.SetAccess(hosts, all, each) })
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

// SetQueues is Machine.SetQueues.
func (s *Server) SetQueues(n int) error {
	return s.change(func(m *Machine) error { return m.SetQueues(n) })
}

// Grow makes a namespace's store and the namespace size bytes long. Smaller
// than it is, or a store that cannot grow, is an error and changes nothing.
func (s *Server) Grow(id uint32, size uint64) error {
	return s.change(func(m *Machine) error {
		n, err := m.namespace(id)
		if err != nil {
			return err
		}
		if err := target.GrowStore(n.Store, n.Size, size, n.BlockSize); err != nil {
			return fmt.Errorf("target %s namespace %d: %w", m.cfg.Name, id, err)
		}
		return m.Resize(id, size)
	})
}
