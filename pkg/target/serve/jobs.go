package serve

import "slices"

// A job is what a task does with its store. Stores in memory do it at once,
// unless it is long; for the others it runs beside the machine (Core.Run), so
// that a slow disk stops no connection. Jobs begin in the order of their
// commands, and may end in any: neither SCSI's SIMPLE task attribute (SAM-5 8.9)
// nor NVMe promises more. A job that must be alone waits for those before it,
// and those after it wait for it.
//
// A job that has begun cannot be called back. Whoever ends tasks therefore asks
// WhenOver, and answers only then (I3).

// Turn is the jobs of one unit.
type Turn struct {
	running int
	alone   bool // what runs is alone
	waiting []*Task
	starved bool // in Core.starved
}

// Idle reports that no job of the unit runs or waits.
func (q *Turn) Idle() bool { return q.running == 0 && len(q.waiting) == 0 }

// Work has t's job run beside the machine, in its turn, and then finishes t. The
// job reads the task's fields, which nobody changes while it runs, and writes
// the task's buffer and result, and the store.
func (m *Core) Work(t *Task, q *Turn, job func()) {
	if !t.Cmd.Keep() {
		t.Cmd.Busy()
		return
	}
	t.work, t.turn = job, q
	if t.Head {
		q.waiting = slices.Insert(q.waiting, 0, t)
	} else {
		q.waiting = append(q.waiting, t)
	}
	t.queued = true
	m.next(q)
}

// next begins what may begin on a unit.
func (m *Core) next(q *Turn) {
	for len(q.waiting) > 0 && !q.alone && q.running < MaxUnitJobs {
		t := q.waiting[0]
		if t.Alone && q.running > 0 {
			return
		}
		if len(m.running) >= MaxJobs {
			if !q.starved {
				q.starved = true
				m.starved = append(m.starved, q)
			}
			return
		}
		q.waiting = slices.Delete(q.waiting, 0, 1)
		m.begin(t)
	}
}

// begin hands t's job to the side.
func (m *Core) begin(t *Task) {
	t.turn.running++
	t.turn.alone = t.Alone
	t.queued, t.Running = false, true
	m.running = append(m.running, t)
	job := t.work
	m.Run(func() error { job(); return nil }, func(error) { m.ended(t) })
}

// ended takes a job that is over: its task is finished, unless it was ended
// meanwhile; who waited for it is told; the next one begins.
func (m *Core) ended(t *Task) {
	q, waits := t.turn, t.waits
	t.Running, t.waits, t.work = false, nil, nil
	m.running = slices.DeleteFunc(m.running, func(o *Task) bool { return o == t })
	q.running--
	q.alone = false
	if t.Dead {
		t.Cmd.Free()
	} else {
		t.Cmd.Finish()
	}
	for _, w := range waits {
		w.one()
	}
	m.next(q)
	for len(m.starved) > 0 && len(m.running) < MaxJobs {
		q := m.starved[0]
		m.starved = slices.Delete(m.starved, 0, 1)
		q.starved = false
		m.next(q)
	}
}

// unqueue takes a task that is ended out of its turn.
func (q *Turn) unqueue(t *Task) {
	// What it was in the way of begins when a job ends: whoever waits, waits for
	// one. Not now: who ends this task may be about to end the next.
	t.queued = false
	q.waiting = slices.DeleteFunc(q.waiting, func(o *Task) bool { return o == t })
	waits := t.waits
	t.waits = nil
	for _, w := range waits {
		w.one()
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

// WhenOver calls then once the running jobs that match are over; at once if
// there are none. Jobs that begin later do not count. Ended tasks match as
// well: their job is what the waiting is for (I3).
func (m *Core) WhenOver(match func(t *Task) bool, then func()) {
	w := &wait{then: then, left: 1}
	for _, t := range m.running {
		if match(t) {
			t.waits = append(t.waits, w)
			w.left++
		}
	}
	w.one()
}

// WhenStill calls then once the jobs that match, running or still waiting for
// their turn, are over or ended; at once if there are none. Jobs that come later
// do not count.
func (m *Core) WhenStill(match func(t *Task) bool, then func()) {
	w := &wait{then: then, left: 1}
	note := func(t *Task) {
		if match(t) {
			t.waits = append(t.waits, w)
			w.left++
		}
	}
	// A unit with jobs that wait has one that runs, or is starved.
	turns := map[*Turn]struct{}{}
	for _, t := range m.running {
		note(t)
		turns[t.turn] = struct{}{}
	}
	for _, q := range m.starved {
		turns[q] = struct{}{}
	}
	for q := range turns {
		for _, t := range q.waiting {
			note(t)
		}
	}
	w.one()
}

// Runs reports whether a job of a task that matches runs.
func (m *Core) Runs(match func(t *Task) bool) bool { return slices.ContainsFunc(m.running, match) }

// Jobs counts the running jobs, and the units that wait for a place for theirs.
func (m *Core) Jobs() int { return len(m.running) + len(m.starved) }
