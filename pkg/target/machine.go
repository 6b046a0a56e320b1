package target

import (
	"fmt"
	"slices"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// Machine is the target's protocol and state. One caller at a time; Server
// holds a lock around it.
//
// The flow of a command: Conn.Advance (receive.go) cuts PDUs; dispatch
// (ffp.go) checks CmdSN; task.go collects write data and asks for it; fault.go
// may hold, delay or spoil; exec.go does it; answer.go writes the answer into
// the connection's output.
type Machine struct {
	serve.Core
	cfg      Config
	units    map[uint32]*unit
	numbers  []uint32 // of units, in the order of the configuration
	portals  []*portal
	groups   map[uint16]scsi.AccessState
	implicit time.Duration // RTPG: implicit transition time
	sessions map[sessionKey]*session
	nextTSIH uint16
	ttt      uint32 // last target transfer tag of an R2T
	nonces   auth.Nonces
	tasks    []*task // to reuse
	unheld   bool    // RefuseReservations

	// directory, if set, answers SendTargets, and makes this a target that no
	// name means: see Hub.
	directory func(out []byte, initiator, only string) []byte

	stats Stats
}

// Stats are counters since the target began.
type Stats struct {
	Logins, Reinstated       uint64
	Commands, Reads, Writes  uint64
	BytesRead, BytesWritten  uint64
	Flushes, Aborted, Resets uint64
	LateWrites               uint64 // executed after their connection was gone
	Answered                 uint64
	ProtocolErrors           uint64
}

// unit is one logical unit.
type unit struct {
	LUN
	wire         scsi.LUN
	memory       Viewer // the store, if its bytes can be sent where they lie
	reservations reservations
	turn         serve.Turn

	// By MODE SELECT and START STOP UNIT; until the target ends.
	noCache, swp, descriptors bool
	stopped                   bool
}

// uncached reports whether each write must be made durable before its answer.
func (u *unit) uncached() bool { return u.WriteThrough || u.noCache }

// portal is one portal's state.
type portal struct {
	PortalConfig
	index    int // from 1; also the relative port identifier
	devices  map[uint32]Device
	redirect string
	moved    bool // the redirect is permanent
	refuse   [2]byte
	refusing bool
	conns    map[*conn]struct{}
}

// sessionKey names a session for reinstatement (RFC 7143 6.3.5).
type sessionKey struct {
	initiator string
	isid      [6]byte
	tpgt      uint16
	discovery uint16 // TSIH of a discovery session: these reinstate nothing
}

// session is one I_T nexus. conn is nil when it is kept only for late tasks.
type session struct {
	key        sessionKey
	tsih       uint16
	conn       *conn
	portal     *portal
	discovery  bool
	expCmdSN   uint32
	maxCmdSN   uint32
	m          *Machine
	tasks      map[uint32]*task
	attentions map[uint32][]scsi.Sense
	waitingTMF int // task management functions that wait for jobs to be over
}

// NewMachine builds a target without portals.
func NewMachine(cfg Config) (*Machine, error) {
	if err := cfg.normalize(); err != nil {
		return nil, err
	}
	m := &Machine{cfg: cfg, units: map[uint32]*unit{}, groups: map[uint16]scsi.AccessState{},
		sessions: map[sessionKey]*session{}, nextTSIH: 1}
	for _, l := range cfg.LUNs {
		u, err := m.newUnit(l)
		if err != nil {
			return nil, err
		}
		m.units[l.Number] = u
		m.numbers = append(m.numbers, l.Number)
	}
	return m, nil
}

// newUnit checks and completes a logical unit that is to be added.
func (m *Machine) newUnit(l LUN) (*unit, error) {
	if l.Store == nil {
		return nil, errNoLUN
	}
	wire, err := scsi.LUNFromNumber(l.Number)
	if err != nil || l.Number >= 1<<14 {
		return nil, fmt.Errorf("target %s: LUN %d is out of 0..16383", m.cfg.Name, l.Number)
	}
	if m.units[l.Number] != nil || len(m.units) >= maxLUNs {
		return nil, fmt.Errorf("target %s: LUN %d twice, or more than %d", m.cfg.Name, l.Number, maxLUNs)
	}
	if err := l.fill(m.cfg.Name, l.Number, l.Store); err != nil {
		return nil, err
	}
	if align := StoreAlignment(l.Store); align > uint64(l.BlockSize) {
		return nil, fmt.Errorf("target %s LUN %d: its store does direct I/O in blocks of %d bytes: give the LUN such blocks, or leave direct off",
			m.cfg.Name, l.Number, align)
	}
	u := &unit{LUN: l, wire: wire}
	u.memory, _ = l.Store.(Viewer)
	return u, nil
}

// AddPortal adds a portal and returns its number, from 1.
func (m *Machine) AddPortal(pc PortalConfig) (int, error) {
	free := slices.IndexFunc(m.portals, (*portal).gone)
	if free < 0 && len(m.portals) >= serve.MaxPortals {
		return 0, fmt.Errorf("target %s: more than %d portals", m.cfg.Name, serve.MaxPortals)
	}
	if pc.TPGT == 0 {
		pc.TPGT = 1
	}
	if pc.Group == 0 {
		pc.Group = 1
	}
	if _, ok := m.groups[pc.Group]; !ok {
		m.groups[pc.Group] = scsi.Optimized
	}
	if free < 0 {
		free = len(m.portals)
		m.portals = append(m.portals, nil)
	}
	m.portals[free] = &portal{PortalConfig: pc, index: free + 1, devices: map[uint32]Device{}, conns: map[*conn]struct{}{}}
	return free + 1, nil
}

// portal finds a portal by number; nil when there is none.
func (m *Machine) portal(n int) *portal {
	if n < 1 || n > len(m.portals) {
		return nil
	}
	return m.portals[n-1]
}

// device is what unit u says of itself at portal p.
func (p *portal) device(u *unit) *Device {
	if d, ok := p.devices[u.Number]; ok {
		return &d
	}
	return &u.Device
}

// Tick runs what is due at now: delayed commands, logins that took too long.
func (m *Machine) Tick(now time.Time) {
	m.Due(now)
	for _, p := range m.portals {
		for c := range p.conns {
			if c.sess == nil && !c.began.IsZero() && now.Sub(c.began) >= serve.LoginTimeout {
				c.Fail("login took too long")
			}
		}
	}
}

// Next is when Tick has something to do; ok false: nothing waits.
func (m *Machine) Next() (at time.Time, ok bool) {
	return serve.Earliest(func(note func(time.Time)) {
		m.Waiting(note)
		for _, p := range m.portals {
			for c := range p.conns {
				if c.sess == nil && !c.began.IsZero() {
					note(c.began.Add(serve.LoginTimeout))
				}
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

// Name is the target's iSCSI name.
func (m *Machine) Name() string { return m.cfg.Name }

// endSession drops a session and ends its tasks: none of them executes later.
// abort throws away what its connection still had to say.
func (m *Machine) endSession(s *session, abort bool) {
	m.endTasks(s)
	if m.sessions[s.key] == s {
		delete(m.sessions, s.key)
	}
	if c := s.conn; c != nil {
		s.conn = nil
		if abort {
			c.Abort()
		} else {
			c.Close()
		}
	}
}

// endTasks ends the tasks of a session.
func (m *Machine) endTasks(s *session) {
	for _, t := range s.tasks {
		m.abort(t)
	}
}

// lost is a session whose connection broke: tasks that were told to run late
// stay, the others end (RFC 7143 6.3.5).
func (m *Machine) lost(s *session) {
	s.conn = nil
	for _, t := range s.tasks {
		if m.StaysLate(&t.Task) {
			t.conn = nil
			continue
		}
		m.abort(t)
	}
	if len(s.tasks) == 0 && m.sessions[s.key] == s {
		delete(m.sessions, s.key)
	}
}

// attention queues a unit attention for unit n on all sessions but one.
func (m *Machine) attention(n uint32, sense scsi.Sense, but *session) {
	for _, s := range m.sessions {
		if s == but || s.discovery || len(s.attentions[n]) >= maxAttentions {
			continue
		}
		s.attentions[n] = append(s.attentions[n], sense)
	}
}
