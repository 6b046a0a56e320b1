package target

import (
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// work does a task's job with its store; see serve's jobs.go.
type work func(t *task) scsi.Sense

// inline reports whether the unit's jobs are done at once: its store is in
// memory, and none runs that was too long for that.
func (u *unit) inline() bool { return u.memory != nil && u.turn.Idle() }

// run does t's job, now or in its turn, and then finishes t.
func (m *Machine) run(t *task, w work) {
	u := t.unit
	if m.Run == nil || u.inline() && t.n <= serve.MaxTransfer {
		m.finish(t, w(t))
		return
	}
	t.Head, t.Alone = t.attr == pdu.AttrHead, t.alone()
	m.Work(&t.Task, &u.turn, func() { t.bad = w(t) })
}

// alone reports whether t's job may run beside no other: ORDERED, or atomic by
// its definition.
func (t *task) alone() bool {
	switch t.cmd.Op {
	case scsi.OpCompareAndWrite, scsi.OpOrWrite16:
		return true
	}
	return t.attr == pdu.AttrOrdered
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

// tasks is a match of this protocol's tasks for WhenOver and Runs.
func tasks(match func(t *task) bool) func(*serve.Task) bool {
	return func(o *serve.Task) bool {
		t, ok := o.Cmd.(*task)
		return ok && match(t)
	}
}

// whenOver is serve's WhenOver for tasks of this protocol.
func (m *Machine) whenOver(match func(t *task) bool, then func()) { m.WhenOver(tasks(match), then) }

// A task as serve sees it.

// Keep implements serve.Command.
func (t *task) Keep() bool { return t.sess.m.keep(t) }

// Busy implements serve.Command.
func (t *task) Busy() { t.sess.m.answer(t, scsi.StatusTaskSetFull, nil) }

// Execute implements serve.Command.
func (t *task) Execute() { t.sess.m.execute(t) }

// Finish implements serve.Command.
func (t *task) Finish() { t.sess.m.finish(t, t.bad) }

// Abort implements serve.Command.
func (t *task) Abort() { t.sess.m.abort(t) }

// Free implements serve.Command.
func (t *task) Free() { t.sess.m.free(t) }

// newTask returns a zero task.
func (m *Machine) newTask() *task {
	if n := len(m.tasks); n > 0 {
		t := m.tasks[n-1]
		m.tasks = m.tasks[:n-1]
		return t
	}
	t := &task{}
	t.Cmd = t
	return t
}

// free gives back a task and its buffer. Nobody may hold it any more.
func (m *Machine) free(t *task) {
	if t.buf != nil {
		m.Put(t.buf)
	}
	*t = task{Task: serve.Task{Cmd: t}}
	if len(m.tasks) < maxDepth {
		m.tasks = append(m.tasks, t)
	}
}

// buffer gives t a buffer of n bytes; false when the target holds too much.
func (m *Machine) buffer(t *task, n int) (ok bool) {
	t.buf, ok = m.Get(n)
	return ok
}
