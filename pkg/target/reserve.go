package target

import (
	"encoding/binary"
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// reservations are a unit's persistent reservations (SPC-4 5.12). They belong
// to nexuses, not sessions, and live as long as the Machine: no APTPL.
type reservations = serve.Reservations[sessionKey, scsi.ReserveType]

// Senses of PERSISTENT RESERVE OUT, and what others are told.
var (
	senseBadRelease  = scsi.Sense{Key: scsi.KeyIllegalRequest, ASC: 0x26, ASCQ: 0x04}
	sensePreempted   = scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x2A, ASCQ: 0x03}
	senseReleased    = scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x2A, ASCQ: 0x04}
	senseRegistryCut = scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x2A, ASCQ: 0x05}
)

// conflicts reports whether a command of nexus n is shut out (SPC-4 table 66,
// SBC-3 table 13).
func conflicts(r *reservations, n sessionKey, c *scsi.Command) bool {
	if r.Admits(n) {
		return false
	}
	reads := r.Type().ReadsConflict()
	switch c.Op {
	case scsi.OpModeSelect6, scsi.OpModeSelect10:
		return true
	case scsi.OpStartStopUnit:
		return c.Bits&^scsi.UnitNoFlush != scsi.UnitStart
	case scsi.OpPreventAllow:
		return c.Bits != 0
	case scsi.OpModeSense6, scsi.OpModeSense10, scsi.OpVerify10, scsi.OpVerify12, scsi.OpVerify16,
		scsi.OpPrefetch10, scsi.OpPrefetch16:
		return reads
	case scsi.OpServiceActionIn16:
		return c.Action == scsi.ActionGetLBAStatus && reads
	}
	return r.Shuts(n, kindOf(c))
}

// RefuseReservations makes PERSISTENT RESERVE IN and OUT unknown commands: a target
// that does not have them.
func (m *Machine) RefuseReservations() { m.unheld = true }

// reserveIn answers PERSISTENT RESERVE IN.
func (m *Machine) reserveIn(t *task) {
	if m.unheld {
		m.check(t, scsi.SenseInvalidOpcode)
		return
	}
	r := &t.unit.reservations
	switch t.cmd.Action {
	case scsi.ActionReadKeys:
		var keys []uint64
		for _, n := range r.Registrants() {
			key, _ := r.Key(n)
			keys = append(keys, key)
		}
		m.reply(t, scsi.AppendKeys(nil, r.Generation, keys...))
	case scsi.ActionReadReservation:
		v := scsi.Reservation{Generation: r.Generation, Held: r.Held(), Type: r.Type(), Key: r.HolderKey()}
		m.reply(t, v.Append(nil))
	case scsi.ActionReadFullStatus:
		m.reply(t, m.fullStatus(r))
	default: // REPORT CAPABILITIES: the type mask is valid, all six types
		m.reply(t, []byte{0, 8, 0, 0x80, 0xEA, 0x01, 0, 0})
	}
}

func (m *Machine) fullStatus(r *reservations) []byte {
	b := scsi.AppendKeys(nil, r.Generation)
	for _, n := range r.Registrants() {
		port := slices.IndexFunc(m.portals, func(p *portal) bool { return p.TPGT == n.tpgt }) + 1
		key, _ := r.Key(n)
		v := scsi.Reservation{Held: r.Holds(n), Key: key, Type: r.Type()}
		b = scsi.AppendFullStatus(b, v, uint16(port), n.initiator, n.isid)
	}
	binary.BigEndian.PutUint32(b[4:], uint32(len(b)-8))
	return b
}

// reserveOut does PERSISTENT RESERVE OUT (SPC-4 6.16).
func (m *Machine) reserveOut(t *task) {
	if m.unheld {
		m.check(t, scsi.SenseInvalidOpcode)
		return
	}
	if t.cmd.Alloc != scsi.ReserveParamLen || int(t.got) < scsi.ReserveParamLen {
		m.check(t, scsi.SenseParamLength)
		return
	}
	key, action, aptpl, err := scsi.ParseReserveParam(t.data)
	if err != nil || aptpl || t.data[20]&0x0c != 0 { // no APTPL, SPEC_I_PT, ALL_TG_PT
		m.check(t, scsi.SenseInvalidParam)
		return
	}
	r, n := &t.unit.reservations, t.sess.key
	mine, registered := r.Key(n)
	switch {
	case t.cmd.Action == scsi.ActionRegisterAndIgnore:
	case t.cmd.Action == scsi.ActionRegister && !registered && key == 0:
	case !registered || mine != key:
		m.answer(t, scsi.StatusReservationConflict, nil)
		return
	}
	switch t.cmd.Action {
	case scsi.ActionRegister, scsi.ActionRegisterAndIgnore:
		m.register(t, r, action)
	case scsi.ActionReserve:
		m.reserve(t, r)
	case scsi.ActionRelease:
		m.release(t, r)
	case scsi.ActionClear:
		m.tell(t.unit, r.Registrants(), sensePreempted, n)
		r.Clear()
		m.good(t)
	default:
		m.preempt(t, r, action)
	}
}

func (m *Machine) register(t *task, r *reservations, key uint64) {
	n := t.sess.key
	switch {
	case key != 0 && len(r.Registrants()) >= scsi.MaxKeys:
		m.check(t, scsi.Sense{Key: scsi.KeyIllegalRequest, ASC: 0x55, ASCQ: 0x04}) // insufficient registration resources
		return
	case key != 0:
		r.Register(n, key)
	case r.Remove(n) && r.Type().Registrants():
		m.tell(t.unit, r.Registrants(), senseReleased, n)
	}
	r.Generation++
	m.good(t)
}

func (m *Machine) reserve(t *task, r *reservations) {
	switch {
	case !t.cmd.Type.Valid():
		m.check(t, scsi.SenseInvalidCDB)
	case !r.Reserve(t.sess.key, t.cmd.Type):
		m.answer(t, scsi.StatusReservationConflict, nil)
	default:
		m.good(t)
	}
}

func (m *Machine) release(t *task, r *reservations) {
	n := t.sess.key
	switch {
	case !r.Holds(n):
	case r.Type() != t.cmd.Type:
		m.check(t, senseBadRelease)
		return
	default:
		r.Release()
		if r.Type().Registrants() {
			m.tell(t.unit, r.Registrants(), senseReleased, n)
		}
	}
	m.good(t)
}

// preempt removes the registrations with a key, and takes the reservation if
// that was its holder's; AND ABORT also ends the tasks of those removed: what
// they had in the target never executes (I3).
func (m *Machine) preempt(t *task, r *reservations, key uint64) {
	n, was := t.sess.key, r.Type()
	p := r.Preempts(n, key)
	mine, _ := r.Key(n)
	switch {
	case key == 0 && !p.All:
		m.check(t, scsi.SenseInvalidParam)
		return
	case len(p.Out) == 0 && !p.Takes && mine != key:
		m.answer(t, scsi.StatusReservationConflict, nil)
		return
	case p.Takes && !t.cmd.Type.Valid():
		m.check(t, scsi.SenseInvalidCDB)
		return
	}
	aborts := t.cmd.Action == scsi.ActionPreemptAbort
	r.Preempt(n, p, t.cmd.Type)
	for _, o := range p.Out {
		if s := m.sessions[o]; s != nil && aborts {
			m.abortUnit(s, t.unit.Number)
		}
	}
	m.tell(t.unit, p.Out, senseRegistryCut, n)
	if p.Takes && was != t.cmd.Type { // whoever is left
		m.tell(t.unit, r.Registrants(), senseReleased, n)
	}
	if aborts {
		m.goodWhenOver(t, p.Out)
		return
	}
	m.good(t)
}

// goodWhenOver answers PREEMPT AND ABORT when no job of the nexuses, sessions
// that are gone included, runs on the unit any more (I3).
func (m *Machine) goodWhenOver(t *task, nexuses []sessionKey) {
	u := t.unit
	if !t.listed && t.conn != nil {
		t.conn.list(t)
	}
	t.Running = true // until then a reset ends it, but does not free it
	m.whenOver(func(o *task) bool { return o.unit == u && slices.Contains(nexuses, o.sess.key) }, func() {
		if t.Running = false; t.Dead {
			m.free(t)
			return
		}
		m.good(t)
	})
}

// tell queues a unit attention for the sessions of nexuses, but one.
func (m *Machine) tell(u *unit, nexuses []sessionKey, sense scsi.Sense, but sessionKey) {
	for _, n := range nexuses {
		if s := m.sessions[n]; s != nil && n != but && len(s.attentions[u.Number]) < maxAttentions {
			s.attentions[u.Number] = append(s.attentions[u.Number], sense)
		}
	}
}
