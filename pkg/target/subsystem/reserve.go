package subsystem

import (
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// reservations of a namespace belong to hosts, by their identifier, whatever
// their controllers, and live as long as the Machine: no persistence.
type reservations = serve.Reservations[[16]byte, nvme.ReserveType]

// reserve does Reservation Register, Acquire and Release (NVM 3.3).
func (t *task) reserve() {
	r, bad := nvme.ParseReserve(&t.cmd)
	current, other, err := r.ParseKeys(t.data)
	if err != nil {
		bad = nvme.InvalidField.Final()
	}
	if !bad.OK() {
		t.answer(bad)
		return
	}
	switch r.Op {
	case nvme.OpReserveRegister:
		t.register(&r, current, other)
	case nvme.OpReserveAcquire:
		t.acquire(&r, current, other)
	default:
		t.release(&r, current)
	}
}

func (t *task) register(r *nvme.ReserveCommand, current, next uint64) {
	v, host := &t.ns.reservations, t.q.ctrl.hostID
	mine, registered := v.Key(host)
	wrong := registered && !r.Ignore && mine != current
	switch {
	case r.Persist == nvme.PersistOn:
		t.answer(nvme.InvalidField.Final())
		return
	case r.Action == nvme.ActionRegister:
		if registered && mine != next || len(v.Registrants()) >= nvme.MaxRegistrants {
			t.answer(nvme.ReservationConflict)
			return
		}
		v.Register(host, next)
	case !registered && !(r.Ignore && r.Action == nvme.ActionReplace) || wrong:
		t.answer(nvme.ReservationConflict)
		return
	case r.Action == nvme.ActionReplace:
		v.Register(host, next)
	default:
		if v.Remove(host) && v.Type().Registrants() {
			t.tellReleased()
		}
	}
	v.Generation++
	t.answer(nvme.Success)
}

// tellReleased notes the end of a reservation that registrants could use.
func (t *task) tellReleased() {
	for _, host := range t.ns.reservations.Registrants() {
		t.m.note(host, t.q.ctrl.hostID, t.ns.ID, noteReleased)
	}
}

// mine reports whether the host gave its own key; else the command is over.
func (t *task) mine(r *nvme.ReserveCommand, current uint64) bool {
	mine, registered := t.ns.reservations.Key(t.q.ctrl.hostID)
	if !registered || !r.Ignore && mine != current {
		t.answer(nvme.ReservationConflict)
		return false
	}
	return true
}

func (t *task) acquire(r *nvme.ReserveCommand, current, preempted uint64) {
	v, host := &t.ns.reservations, t.q.ctrl.hostID
	if !t.mine(r, current) {
		return
	}
	if r.Action == nvme.ActionAcquire {
		if !v.Reserve(host, r.Type) {
			t.answer(nvme.ReservationConflict)
			return
		}
		t.answer(nvme.Success)
		return
	}
	p := v.Preempts(host, preempted)
	mine, _ := v.Key(host)
	switch {
	case preempted == 0 && !p.All:
		t.answer(nvme.InvalidField.Final())
		return
	case len(p.Out) == 0 && !p.Takes && mine != preempted:
		t.answer(nvme.ReservationConflict)
		return
	}
	was := v.Type()
	v.Preempt(host, p, r.Type)
	for _, o := range p.Out {
		t.m.note(o, host, t.ns.ID, noteUnregistered)
	}
	if p.Takes && was.Registrants() && was != r.Type { // whoever is left
		t.tellReleased()
	}
	if r.Action == nvme.ActionPreemptAbort {
		t.abortHosts(p.Out)
		return
	}
	t.answer(nvme.Success)
}

// abortHosts ends the commands on the namespace of hosts that were preempted:
// what they had in the target never executes. The answer waits for the jobs
// that cannot be called back (I3).
func (t *task) abortHosts(hosts [][16]byte) {
	m, ns := t.m, t.ns
	theirs := func(o *task) bool {
		return o.ns == ns && o.q.ctrl != nil && slices.Contains(hosts, o.q.ctrl.hostID)
	}
	for _, x := range m.controllers {
		x.each(func(q *queue) {
			for _, o := range q.tasks {
				if theirs(o) {
					o.preempted()
				}
			}
		})
	}
	t.list()
	t.Running = true // until then a reset ends it, but does not free it
	m.WhenOver(tasks(theirs), func() {
		if t.Running = false; t.Dead {
			t.Free()
			return
		}
		t.answer(nvme.Success)
	})
}

// preempted ends a command whose host lost its registration. One that still
// gets its data is answered when it has it, one whose job runs when that is over.
func (t *task) preempted() {
	switch {
	case t.conn == nil:
		t.Abort()
	case t.Running:
	case t.Waits():
		t.m.Cancel(&t.Task)
		t.answer(nvme.PreemptAborted)
	default:
		t.doomed = nvme.PreemptAborted
	}
}

func (t *task) release(r *nvme.ReserveCommand, current uint64) {
	v, host := &t.ns.reservations, t.q.ctrl.hostID
	if !t.mine(r, current) {
		return
	}
	switch {
	case r.Action == nvme.ActionClear:
		for _, o := range v.Registrants() {
			t.m.note(o, host, t.ns.ID, notePreempted)
		}
		v.Clear()
	case !v.Holds(host):
	case v.Type() != r.Type:
		t.answer(nvme.InvalidField.Final())
		return
	default:
		v.Release()
		if v.Type().Registrants() {
			t.tellReleased()
		}
	}
	t.answer(nvme.Success)
}

func (t *task) reserveReport() {
	if !t.cmd.ReportExtended() { // host identifiers have 128 bits here
		t.answer(nvme.HostIDFormat.Final())
		return
	}
	v := &t.ns.reservations
	s := nvme.ReservationStatus{Generation: v.Generation}
	if v.Held() {
		s.Type = v.Type()
	}
	for _, host := range v.Registrants() {
		key, _ := v.Key(host)
		s.Registrants = append(s.Registrants, nvme.Registrant{ControllerID: t.m.controllerOf(host), Holds: v.Holds(host), Key: key, HostID: host})
	}
	out := s.Append(nil, true)
	t.reply(out)
}

// controllerOf is a controller of a host; 0xFFFF when it has none.
func (m *Machine) controllerOf(host [16]byte) uint16 {
	id := uint16(nvme.AnyController)
	for _, x := range m.controllers {
		if x.hostID == host && !x.discovery && x.id < id {
			id = x.id
		}
	}
	return id
}
