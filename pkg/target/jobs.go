package target

import (
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// A job is what a task does with its store. Stores in memory do it at once,
// unless it is long; for the others it runs beside the machine (Machine.Run), so
// that a slow disk stops no connection. Jobs begin in the order of their commands, and may end in
// any: that is what the SIMPLE task attribute allows (SAM-5 8.9). A job that
// must be alone (ORDERED, or atomic by its definition) waits for those before
// it, and those after it wait for it.
//
// A job that has begun cannot be called back. Whoever ends tasks therefore asks
// whenOver, and answers only then (I3).

// work does a task's job. It runs without the machine's lock: it reads the
// task's fields, which nobody changes while it runs, and writes the task's
// buffer and result.
type work func(t *task) scsi.Sense

// turn is the jobs of one unit.
type turn struct {
	running int
	alone   bool // what runs is alone
	waiting []*task
	starved bool // in Machine.starved
}

// inline reports whether the unit's jobs are done at once: its store is in
// memory, and none runs that was too long for that.
func (u *unit) inline() bool {
	return u.memory != nil && u.turn.running == 0 && len(u.turn.waiting) == 0
}

// run does t's job, now or in its turn, and then finishes t.
func (m *Machine) run(t *task, w work) {
	u := t.unit
	if m.Run == nil || u.inline() && t.n <= maxTransfer {
		m.finish(t, w(t))
		return
	}
	if !m.keep(t) {
		m.answer(t, scsi.StatusTaskSetFull, nil)
		return
	}
	t.work = w
	if t.attr == pdu.AttrHead {
		u.turn.waiting = slices.Insert(u.turn.waiting, 0, t)
	} else {
		u.turn.waiting = append(u.turn.waiting, t)
	}
	t.queued = true
	m.next(u)
}

// alone reports whether t's job may run beside no other.
func (t *task) alone() bool {
	switch t.cmd.Op {
	case scsi.OpCompareAndWrite, scsi.OpOrWrite16:
		return true
	}
	return t.attr == pdu.AttrOrdered
}

// next begins what may begin on a unit.
func (m *Machine) next(u *unit) {
	q := &u.turn
	for len(q.waiting) > 0 && !q.alone && q.running < maxUnitJobs {
		t := q.waiting[0]
		if t.alone() && q.running > 0 {
			return
		}
		if len(m.running) >= maxJobs {
			if !q.starved {
				q.starved = true
				m.starved = append(m.starved, u)
			}
			return
		}
		q.waiting = slices.Delete(q.waiting, 0, 1)
		m.begin(t)
	}
}

// begin hands t's job to the side.
func (m *Machine) begin(t *task) {
	q := &t.unit.turn
	q.running++
	q.alone = t.alone()
	t.queued, t.running = false, true
	m.running = append(m.running, t)
	var bad scsi.Sense
	m.Run(func() error { bad = t.work(t); return nil }, func(error) { m.ended(t, bad) })
}

// ended takes a job that is over: its task is finished, unless it was ended
// meanwhile; who waited for it is told; the next one begins.
func (m *Machine) ended(t *task, bad scsi.Sense) {
	u, waits := t.unit, t.waits
	t.running, t.waits = false, nil
	m.running = slices.DeleteFunc(m.running, func(o *task) bool { return o == t })
	u.turn.running--
	u.turn.alone = false
	if t.dead {
		m.free(t)
	} else {
		m.finish(t, bad)
	}
	for _, w := range waits {
		w.one()
	}
	m.next(u)
	for len(m.starved) > 0 && len(m.running) < maxJobs {
		u := m.starved[0]
		m.starved = slices.Delete(m.starved, 0, 1)
		u.turn.starved = false
		m.next(u)
	}
}

// unqueue takes a task that is ended out of its turn.
func (m *Machine) unqueue(t *task) {
	// What it was in the way of begins when a job ends: whoever waits, waits for
	// one. Not now: who ends this task may be about to end the next.
	t.queued = false
	q := &t.unit.turn
	q.waiting = slices.DeleteFunc(q.waiting, func(o *task) bool { return o == t })
}

// finish answers a task whose job is over.
func (m *Machine) finish(t *task, bad scsi.Sense) {
	switch {
	case bad != (scsi.Sense{}):
		m.check(t, bad)
	case t.reads:
		m.sendRead(t)
	case t.result != nil:
		m.reply(t, t.result)
	case t.met:
		m.answer(t, scsi.StatusConditionMet, nil)
	default:
		m.good(t)
	}
}

// wait is somebody who waits for jobs to be over.
type wait struct {
	left int
	then func()
}

func (w *wait) one() {
	if w.left--; w.left == 0 {
		w.then()
	}
}

// whenOver calls then once the running jobs that match are over; at once if
// there are none. Jobs that begin later do not count. Ended tasks match as
// well: their job is what the waiting is for (I3).
func (m *Machine) whenOver(match func(t *task) bool, then func()) {
	w := &wait{then: then, left: 1}
	for _, t := range m.running {
		if match(t) {
			t.waits = append(t.waits, w)
			w.left++
		}
	}
	w.one()
}
