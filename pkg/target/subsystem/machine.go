package subsystem

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// Machine is the subsystem's protocol and state. One caller at a time; Server
// holds a lock around it.
//
// The flow of a command: conn.Step (conn.go) cuts PDUs; capsule.go makes a
// task, checks it and asks for its data; faults may hold, delay or spoil it;
// exec.go does it; answer.go writes the answer into the connection's output.
type Machine struct {
	serve.Core
	cfg         Config
	namespaces  map[uint32]*namespace
	ids         []uint32 // of namespaces, rising
	portals     []*portal
	groups      map[groupKey]*group
	controllers map[uint16]*controller
	nextID      uint16
	anaChanges  uint64 // of the ANA log
	tasks       []*task
	source      auth.Source

	// directory, if set, makes the discovery log, and makes this a subsystem that
	// no name means: see Hub.
	directory  func(host string) []nvme.Record
	generation uint64 // of the discovery log

	stats Stats
}

// Stats are counters since the subsystem began.
type Stats struct {
	Connects, Shutdowns, Expired uint64 // controllers: begun, shut down in order, without keep alive
	Commands, Reads, Writes      uint64
	BytesRead, BytesWritten      uint64
	Flushes, Aborted             uint64
	AuthFailures                 uint64
	LateWrites                   uint64 // executed after their connection was gone
	Answered                     uint64
	ProtocolErrors               uint64
}

// namespace is one namespace.
type namespace struct {
	Namespace
	memory       target.Viewer // the store, if its bytes can be sent where they lie
	turn         serve.Turn
	reservations reservations
	gone         bool
}

// inline reports whether the namespace's jobs are done at once: its store is in
// memory, and none runs that was too long for that.
func (n *namespace) inline() bool { return n.memory != nil && n.turn.Idle() }

// portal is one portal's state.
type portal struct {
	serve.PortalConfig
	index          int // from 1
	devices        map[uint32]Device
	refuse         nvme.Status // of each Connect; 0 none
	taken, refused uint64      // I/O commands that the ANA states let through, or not
	conns          map[*conn]struct{}
}

// groupKey is one ANA group as the portals of one group of portals have it.
type groupKey struct {
	portals uint16
	ana     uint32
}

type group struct {
	state  nvme.AccessState
	change uint64
}

var errPortal = errors.New("target: no such portal")

// NewMachine builds a subsystem without portals.
func NewMachine(cfg Config) (*Machine, error) {
	if err := cfg.normalize(); err != nil {
		return nil, err
	}
	m := &Machine{cfg: cfg, namespaces: map[uint32]*namespace{}, groups: map[groupKey]*group{},
		controllers: map[uint16]*controller{}, nextID: 1, generation: 1}
	for _, n := range cfg.Namespaces {
		if err := m.insert(n); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Name is the subsystem's NQN.
func (m *Machine) Name() string { return m.cfg.Name }

// insert checks, completes and adds a namespace.
func (m *Machine) insert(n Namespace) error {
	if n.Store == nil {
		return errNoNamespace
	}
	if n.ANAGroup == 0 {
		n.ANAGroup = 1
	}
	switch {
	case n.ID < 1 || n.ID > MaxNamespace || n.ANAGroup > MaxANAGroup:
		return fmt.Errorf("target %s: namespace %d or ANA group %d is out of 1..%d and 1..%d", m.cfg.Name, n.ID, n.ANAGroup, MaxNamespace, MaxANAGroup)
	case m.namespaces[n.ID] != nil:
		return fmt.Errorf("target %s: namespace %d twice", m.cfg.Name, n.ID)
	}
	if err := n.fill(m.cfg.Name, n.ID, n.Store); err != nil {
		return err
	}
	if align := target.StoreAlignment(n.Store); align > uint64(n.BlockSize) {
		return fmt.Errorf("target %s namespace %d: its store does direct I/O in blocks of %d bytes: give the namespace such blocks, or leave direct off",
			m.cfg.Name, n.ID, align)
	}
	n.WriteThrough = n.WriteThrough || m.cfg.NoCache
	ns := &namespace{Namespace: n}
	ns.memory, _ = n.Store.(target.Viewer)
	m.namespaces[n.ID] = ns
	at, _ := slices.BinarySearch(m.ids, n.ID)
	m.ids = slices.Insert(m.ids, at, n.ID)
	return nil
}

// AddPortal adds a portal and returns its number, from 1.
func (m *Machine) AddPortal(pc serve.PortalConfig) (int, error) {
	free := slices.IndexFunc(m.portals, (*portal).free)
	if free < 0 && len(m.portals) >= serve.MaxPortals {
		return 0, fmt.Errorf("target %s: more than %d portals", m.cfg.Name, serve.MaxPortals)
	}
	if free < 0 {
		free = len(m.portals)
		m.portals = append(m.portals, nil)
	}
	if pc.Group == 0 {
		pc.Group = 1
	}
	if pc.TPGT == 0 {
		pc.TPGT = uint16(free + 1)
	}
	m.portals[free] = &portal{PortalConfig: pc, index: free + 1, devices: map[uint32]Device{}, conns: map[*conn]struct{}{}}
	m.discoveryChanged()
	return free + 1, nil
}

// RemovePortal ends the controllers of a portal and takes it out of what hosts
// are told. Its number may be given again.
func (m *Machine) RemovePortal(n int) error {
	p := m.portal(n)
	if p == nil {
		return errPortal
	}
	for _, x := range m.controllers {
		if x.portal == p {
			m.end(x)
		}
	}
	for c := range p.conns {
		c.Abort() // not connected yet
	}
	p.Address, p.Group = "", 0
	m.discoveryChanged()
	return nil
}

// free reports whether the portal was removed and nothing of it is left.
func (p *portal) free() bool { return p.Group == 0 && len(p.conns) == 0 }

// portal finds a portal by number; nil when there is none.
func (m *Machine) portal(n int) *portal {
	if n < 1 || n > len(m.portals) {
		return nil
	}
	return m.portals[n-1]
}

// device is what namespace n says of itself at portal p.
func (p *portal) device(n *namespace) *Device {
	if d, ok := p.devices[n.ID]; ok {
		return &d
	}
	return &n.Device
}

// state is the access state of an ANA group at a portal.
func (m *Machine) state(p *portal, ana uint32) nvme.AccessState {
	if g := m.groups[groupKey{p.Group, ana}]; g != nil {
		return g.state
	}
	return nvme.Optimized
}

// Tick runs what is due at now: delayed commands, connections and controllers
// that have been silent for too long.
func (m *Machine) Tick(now time.Time) {
	m.Due(now)
	for _, p := range m.portals {
		for c := range p.conns {
			if (c.q.ctrl == nil || c.unproven()) && now.Sub(c.began) >= serve.LoginTimeout {
				c.Fail("Connect took too long")
			}
		}
	}
	for _, x := range m.controllers {
		if at, ok := x.expires(); ok && !at.After(now) {
			m.stats.Expired++
			m.end(x)
		}
	}
}

// Next is when Tick has something to do; ok false: nothing waits.
func (m *Machine) Next() (at time.Time, ok bool) {
	return serve.Earliest(func(note func(time.Time)) {
		m.Waiting(note)
		for _, p := range m.portals {
			for c := range p.conns {
				if (c.q.ctrl == nil || c.unproven()) && !c.Closing() {
					note(c.began.Add(serve.LoginTimeout))
				}
			}
		}
		for _, x := range m.controllers {
			if at, ok := x.expires(); ok {
				note(at)
			}
		}
	})
}

// Stats reads the counters.
func (m *Machine) Stats() Stats {
	s := m.stats
	s.ProtocolErrors = m.ProtocolErrors
	return s
}
