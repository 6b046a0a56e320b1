package target

import (
	"encoding/binary"
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// reservations are a unit's persistent reservations (SPC-4 5.12). They belong
// to nexuses, not sessions, and live as long as the Machine: no APTPL.
type reservations struct {
	gen    uint32
	keys   map[sessionKey]uint64
	order  []sessionKey // of registration, for READ KEYS
	held   bool
	holder sessionKey // not with an all-registrants type
	kind   scsi.ReserveType
}

// Senses of PERSISTENT RESERVE OUT, and what others are told.
var (
	senseBadRelease  = scsi.Sense{Key: scsi.KeyIllegalRequest, ASC: 0x26, ASCQ: 0x04}
	sensePreempted   = scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x2A, ASCQ: 0x03}
	senseReleased    = scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x2A, ASCQ: 0x04}
	senseRegistryCut = scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x2A, ASCQ: 0x05}
)

// holds reports whether nexus n holds the reservation.
func (r *reservations) holds(n sessionKey) bool {
	_, registered := r.keys[n]
	return r.held && registered && (r.kind.AllRegistrants() || r.holder == n)
}

// conflicts reports whether a command of nexus n is shut out (SPC-4 table 66,
// SBC-3 table 13).
func (r *reservations) conflicts(n sessionKey, c *scsi.Command) bool {
	if !r.held || r.holds(n) {
		return false
	}
	if _, registered := r.keys[n]; registered && r.kind.Registrants() {
		return false
	}
	switch kindOf(c) {
	case Writes, Flushes, Trims, Zeroes:
		return true
	case Reads:
		return r.kind.ReadsConflict()
	}
	switch c.Op {
	case scsi.OpModeSelect6, scsi.OpModeSelect10:
		return true
	case scsi.OpStartStopUnit:
		return c.Bits&^scsi.UnitNoFlush != scsi.UnitStart
	case scsi.OpPreventAllow:
		return c.Bits != 0
	case scsi.OpModeSense6, scsi.OpModeSense10, scsi.OpVerify10, scsi.OpVerify12, scsi.OpVerify16,
		scsi.OpPrefetch10, scsi.OpPrefetch16:
		return r.kind.ReadsConflict()
	case scsi.OpServiceActionIn16:
		return c.Action == scsi.ActionGetLBAStatus && r.kind.ReadsConflict()
	}
	return false
}

func (r *reservations) register(n sessionKey, key uint64) {
	if r.keys == nil {
		r.keys = map[sessionKey]uint64{}
	}
	if _, ok := r.keys[n]; !ok {
		r.order = append(r.order, n)
	}
	r.keys[n] = key
}

func (r *reservations) remove(n sessionKey) {
	delete(r.keys, n)
	if i := slices.Index(r.order, n); i >= 0 {
		r.order = slices.Delete(r.order, i, i+1)
	}
	if r.held && (!r.kind.AllRegistrants() && r.holder == n || len(r.keys) == 0) {
		r.held = false
	}
}

// reserveIn answers PERSISTENT RESERVE IN.
func (m *Machine) reserveIn(t *task) {
	r := &t.unit.reservations
	switch t.cmd.Action {
	case scsi.ActionReadKeys:
		var keys []uint64
		for _, n := range r.order {
			keys = append(keys, r.keys[n])
		}
		m.reply(t, scsi.AppendKeys(nil, r.gen, keys...))
	case scsi.ActionReadReservation:
		v := scsi.Reservation{Generation: r.gen, Held: r.held, Type: r.kind}
		if !r.kind.AllRegistrants() {
			v.Key = r.keys[r.holder]
		}
		m.reply(t, v.Append(nil))
	case scsi.ActionReadFullStatus:
		m.reply(t, m.fullStatus(r))
	default: // REPORT CAPABILITIES: the type mask is valid, all six types
		m.reply(t, []byte{0, 8, 0, 0x80, 0xEA, 0x01, 0, 0})
	}
}

func (m *Machine) fullStatus(r *reservations) []byte {
	b := scsi.AppendKeys(nil, r.gen)
	for _, n := range r.order {
		port := slices.IndexFunc(m.portals, func(p *portal) bool { return p.TPGT == n.tpgt }) + 1
		v := scsi.Reservation{Held: r.holds(n), Key: r.keys[n], Type: r.kind}
		b = scsi.AppendFullStatus(b, v, uint16(port), n.initiator, n.isid)
	}
	binary.BigEndian.PutUint32(b[4:], uint32(len(b)-8))
	return b
}

// reserveOut does PERSISTENT RESERVE OUT (SPC-4 6.16).
func (m *Machine) reserveOut(t *task) {
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
	mine, registered := r.keys[n]
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
		m.tell(t.unit, r.order, sensePreempted, n)
		*r = reservations{gen: r.gen + 1}
		m.good(t)
	default:
		m.preempt(t, r, action)
	}
}

func (m *Machine) register(t *task, r *reservations, key uint64) {
	n := t.sess.key
	switch {
	case key != 0 && len(r.keys) >= scsi.MaxKeys:
		m.check(t, scsi.Sense{Key: scsi.KeyIllegalRequest, ASC: 0x55, ASCQ: 0x04}) // insufficient registration resources
		return
	case key != 0:
		r.register(n, key)
	default:
		others, was := r.held && r.kind.Registrants(), r.held
		r.remove(n)
		if others && was != r.held {
			m.tell(t.unit, r.order, senseReleased, n)
		}
	}
	r.gen++
	m.good(t)
}

func (m *Machine) reserve(t *task, r *reservations) {
	switch n := t.sess.key; {
	case !t.cmd.Type.Valid():
		m.check(t, scsi.SenseInvalidCDB)
	case r.held && (!r.holds(n) || r.kind != t.cmd.Type):
		m.answer(t, scsi.StatusReservationConflict, nil)
	default:
		r.held, r.holder, r.kind = true, n, t.cmd.Type
		m.good(t)
	}
}

func (m *Machine) release(t *task, r *reservations) {
	n := t.sess.key
	switch {
	case !r.holds(n):
	case r.kind != t.cmd.Type:
		m.check(t, senseBadRelease)
		return
	default:
		r.held = false
		if r.kind.Registrants() {
			m.tell(t.unit, r.order, senseReleased, n)
		}
	}
	m.good(t)
}

// preempt removes the registrations with a key, and takes the reservation if
// that was its holder's; AND ABORT also ends the tasks of those removed: what
// they had in the target never executes (I3).
func (m *Machine) preempt(t *task, r *reservations, key uint64) {
	n := t.sess.key
	all := key == 0 && r.held && r.kind.AllRegistrants()
	takes := all || r.held && !r.kind.AllRegistrants() && r.keys[r.holder] == key
	var out []sessionKey
	for _, o := range r.order {
		if o != n && (all || r.keys[o] == key) {
			out = append(out, o)
		}
	}
	switch {
	case key == 0 && !all:
		m.check(t, scsi.SenseInvalidParam)
		return
	case len(out) == 0 && !takes && r.keys[n] != key:
		m.answer(t, scsi.StatusReservationConflict, nil)
		return
	case takes && !t.cmd.Type.Valid():
		m.check(t, scsi.SenseInvalidCDB)
		return
	}
	aborts := t.cmd.Action == scsi.ActionPreemptAbort
	for _, o := range out {
		r.remove(o)
		if s := m.sessions[o]; s != nil && aborts {
			m.abortUnit(s, t.unit.Number)
		}
	}
	m.tell(t.unit, out, senseRegistryCut, n)
	if takes {
		if r.kind != t.cmd.Type { // whoever is left
			m.tell(t.unit, r.order, senseReleased, n)
		}
		r.held, r.holder, r.kind = true, n, t.cmd.Type
	}
	r.gen++
	if aborts {
		m.goodwhenOver(t, out)
		return
	}
	m.good(t)
}

// goodWhenOver answers PREEMPT AND ABORT when no job of the nexuses, sessions
// that are gone included, runs on the unit any more (I3).
func (m *Machine) goodwhenOver(t *task, nexuses []sessionKey) {
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
