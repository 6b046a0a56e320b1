package subsystem

import (
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// task is one command inside the target.
type task struct {
	serve.Task
	m    *Machine
	q    *queue
	conn *conn      // nil when the connection is gone (late execution)
	ns   *namespace // nil: none, or of no matter
	cmd  nvme.Command

	listed bool        // in q.tasks
	doomed nvme.Status // what it is answered with once its data is there

	buf  []byte // owned; nil if all data came in the capsule
	data []byte // what the host sent, buf or the receive buffer
	need uint32 // bytes of it
	got  uint32
	tag  uint16 // of the R2T whose data comes now
	end  uint32 // where that ends

	// Of execution. A job reads them, and writes buf, bad and the store.
	off, n  uint64 // the range, bytes
	durable bool   // the store is flushed before the answer
	reads   bool   // buf is the data to answer with
	bad     nvme.Status
	auth    *authState // of a step of authentication
}

// admin reports whether the command came on an admin queue, or before Connect.
func (t *task) admin() bool { return t.q.id == 0 }

// newTask returns a zero task.
func (m *Machine) newTask() *task {
	if n := len(m.tasks); n > 0 {
		t := m.tasks[n-1]
		m.tasks = m.tasks[:n-1]
		return t
	}
	t := &task{m: m}
	t.Cmd = t
	return t
}

// Free implements serve.Command.
func (t *task) Free() {
	m := t.m
	if t.buf != nil {
		m.Put(t.buf)
	}
	*t = task{m: m, Task: serve.Task{Cmd: t}}
	if len(m.tasks) < maxDepth {
		m.tasks = append(m.tasks, t)
	}
}

// buffer gives t a buffer of n bytes; false when the target holds too much.
func (t *task) buffer(n int) (ok bool) {
	t.buf, ok = t.m.Get(n)
	return ok
}

// list makes the command one of its queue's.
func (t *task) list() {
	if !t.listed {
		t.listed = true
		t.q.tasks[t.cmd.CID] = t
	}
}

func (t *task) unlist() {
	if t.listed {
		t.listed = false
		delete(t.q.tasks, t.cmd.CID)
	}
}

// Keep implements serve.Command.
func (t *task) Keep() bool {
	if t.buf == nil && len(t.data) > 0 {
		data := t.data
		if !t.buffer(len(data)) {
			return false
		}
		copy(t.buf, data)
		t.data = t.buf
	}
	t.list()
	return true
}

// busy is what the target answers with when it has no room.
const busy = nvme.CommandInterrupted

// Busy implements serve.Command. Hosts that understand it are told how long to
// wait (CRD).
func (t *task) Busy() {
	st := busy
	if x := t.q.ctrl; x != nil && x.retryDelays {
		st = st.After(1)
	}
	t.answer(st)
}

// Finish implements serve.Command.
func (t *task) Finish() {
	if t.auth != nil {
		t.authenticated()
		return
	}
	if t.bad.OK() && t.reads {
		t.sendRead()
		return
	}
	t.answer(t.bad)
}

// Abort implements serve.Command.
func (t *task) Abort() {
	m, x := t.m, t.q.ctrl
	m.stats.Aborted++
	t.unlist()
	if t.conn == nil {
		m.NotLate()
	}
	if m.Cancel(&t.Task) {
		t.Free()
	}
	if x != nil {
		m.forget(x)
	}
}

// Traits implements serve.Command.
func (t *task) Traits() serve.Traits {
	v := serve.Traits{Kind: t.kind()}
	if x := t.q.ctrl; x != nil {
		v.Portal = x.portal.index
	}
	if t.ns != nil {
		v.Unit, v.HasUnit = t.ns.ID, true
	}
	switch v.Kind {
	case serve.Reads, serve.Writes, serve.Zeroes:
		v.Ranged, v.First = true, t.cmd.LBA()
		v.End = v.First + uint64(t.cmd.Blocks())
	}
	return v
}

func (t *task) kind() serve.Kind {
	if t.admin() {
		return serve.Admin
	}
	switch t.cmd.Opcode {
	case nvme.OpRead, nvme.OpCompare, nvme.OpVerify:
		return serve.Reads
	case nvme.OpWrite:
		return serve.Writes
	case nvme.OpFlush:
		return serve.Flushes
	case nvme.OpDataset:
		return serve.Trims
	case nvme.OpWriteZeroes:
		return serve.Zeroes
	}
	return serve.Others
}
