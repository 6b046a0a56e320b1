package subsystem

import (
	"slices"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// controller is one controller of the dynamic model: an association with one
// host over one portal.
type controller struct {
	id        uint16 // CNTLID
	portal    *portal
	host      string // NQN
	hostID    [16]byte
	discovery bool
	queues    map[uint16]*queue // by number, 0 the admin queue
	ghosts    []*queue          // whose connection is gone, kept for late tasks
	granted   int               // I/O queues

	cc       nvme.ControllerConfig
	ready    bool
	shutdown uint8 // SHST
	over     bool  // the admin connection is gone, or the controller was ended

	keepAlive time.Duration // KATO; 0 none
	seen      time.Time     // the last command that keeps alive

	events  uint32 // FeatureAsyncConfig
	async   []*task
	notices [len(notices)]notice
	changed map[uint32]bool // namespaces of the changed-namespace log
	errors  []nvme.ErrorEntry
	errorNo uint64

	reserveMask    uint32                   // FeatureReserveNotice: kinds that are not noted
	reserveNotices []nvme.ReservationNotice // oldest first
	reserveNo      uint64
	retryDelays    bool // the host understands CRD (Host Behavior Support)
}

// queue is one queue pair on its connection. ctrl is nil before Connect.
type queue struct {
	m      *Machine
	id     uint16
	ctrl   *controller
	conn   *conn // nil when it is gone
	size   int   // entries
	head   uint16
	noFlow bool // SQHD is not updated, and SUCCESS may stand for an answer
	tasks  map[uint16]*task
	tag    uint16 // of the last R2T
}

// expires is when the controller ends without another command that keeps alive.
func (x *controller) expires() (at time.Time, ok bool) {
	if x.keepAlive == 0 || x.shutdown == nvme.ShutdownComplete {
		return at, false
	}
	return x.seen.Add(x.keepAlive), true
}

// usable reports whether the controller takes I/O commands.
func (x *controller) usable() bool { return x.ready && x.shutdown == nvme.ShutdownNotBegun && !x.over }

// newController finds a free CNTLID; nil when there are too many controllers.
func (m *Machine) newController() *controller {
	if len(m.controllers) >= maxControllers {
		return nil
	}
	for m.controllers[m.nextID] != nil || m.nextID == 0 || m.nextID > maxController {
		m.nextID++ // there are fewer controllers than numbers
	}
	x := &controller{id: m.nextID, queues: map[uint16]*queue{}, changed: map[uint32]bool{}, granted: m.cfg.Queues}
	m.nextID++
	m.controllers[x.id] = x
	m.stats.Connects++
	return x
}

// each calls f for each queue, those that are kept for late tasks too. Ending the
// last task of one of these takes it out.
func (x *controller) each(f func(q *queue)) {
	for _, q := range x.queues {
		f(q)
	}
	for _, q := range slices.Clone(x.ghosts) {
		f(q)
	}
}

// end ends a controller: its tasks do not execute any more, not even late, and
// its connections are reset. Jobs that run go on: see WhenOver.
func (m *Machine) end(x *controller) {
	x.over = true
	delete(m.controllers, x.id)
	x.each(func(q *queue) {
		m.endTasks(q)
		if q.conn != nil {
			q.conn.Abort()
		}
	})
}

// endTasks ends the tasks of a queue, unanswered.
func (m *Machine) endTasks(q *queue) {
	for _, t := range q.tasks {
		t.Abort()
	}
}

// lost is a queue whose connection broke. With the admin queue's the whole
// association is over (Base 3.3.2.2); hosts end I/O queues before they shut down
// the controller, so that one of these takes only its own tasks with it.
func (m *Machine) lost(q *queue) {
	if q.conn == nil {
		return
	}
	x := q.ctrl
	m.strand(q)
	if x == nil {
		return
	}
	if q.id == 0 {
		x.over = true
		for _, o := range x.queues {
			c := o.conn
			m.strand(o)
			c.Abort()
		}
	}
	m.forget(x)
}

// strand ends the tasks of a queue that has no connection any more. Those that
// were told to run late stay, until the controller's keep alive timer expires.
func (m *Machine) strand(q *queue) {
	q.conn = nil
	for _, t := range q.tasks {
		if m.StaysLate(&t.Task) {
			t.conn = nil
			continue
		}
		t.Abort()
	}
	x := q.ctrl
	if x == nil || x.queues[q.id] != q {
		return
	}
	delete(x.queues, q.id)
	if len(q.tasks) > 0 {
		x.ghosts = append(x.ghosts, q)
	}
}

// forget drops a controller that was kept for its last late task.
func (m *Machine) forget(x *controller) {
	x.ghosts = slices.DeleteFunc(x.ghosts, func(q *queue) bool { return len(q.tasks) == 0 })
	if x.over && len(x.queues)+len(x.ghosts) == 0 && m.controllers[x.id] == x {
		delete(m.controllers, x.id)
	}
}

// quiesce ends what a controller's I/O queues do, and calls then when no job of
// the controller's runs any more: hosts take what they are told then for proof
// that nothing of it has an effect later (I3).
func (m *Machine) quiesce(x *controller, then func()) {
	x.each(func(q *queue) {
		if q.id != 0 {
			m.endTasks(q)
		}
	})
	m.WhenOver(tasks(func(t *task) bool { return t.q.ctrl == x }), then)
}

// configure takes a new value of CC (Base 3.1.4.5).
func (m *Machine) configure(x *controller, v uint32) nvme.Status {
	was, cc := x.cc, nvme.ParseConfig(v)
	x.cc = cc
	if cc.Shutdown != nvme.ShutdownNone && x.shutdown == nvme.ShutdownNotBegun {
		m.shutDown(x)
	}
	switch {
	case cc.Enable && !was.Enable:
		if cc.CommandSet != 0 && cc.CommandSet != 6 || cc.PageShift != 12 || !x.discovery && (cc.SQShift != 6 || cc.CQShift != 4) {
			x.cc.Enable = false
			return nvme.InvalidField.Final()
		}
		x.ready = true
		x.seen = m.Now()
	case was.Enable && !cc.Enable:
		m.reset(x)
	}
	return nvme.Success
}

// shutDown begins an orderly shutdown.
func (m *Machine) shutDown(x *controller) {
	x.shutdown = nvme.ShutdownRunning
	m.quiesce(x, func() {
		x.shutdown = nvme.ShutdownComplete
		m.stats.Shutdowns++
	})
}

// reset is a controller level reset: I/O queues go, and CSTS.RDY is cleared when
// nothing of them runs any more.
func (m *Machine) reset(x *controller) {
	m.quiesce(x, func() {
		if !x.cc.Enable {
			x.ready, x.shutdown = false, nvme.ShutdownNotBegun
		}
	})
	for id, q := range x.queues {
		if id != 0 {
			delete(x.queues, id)
			if q.conn != nil {
				q.conn.Close()
			}
		}
	}
}

// tasks is a match of this protocol's tasks for WhenOver and Runs.
func tasks(match func(t *task) bool) func(*serve.Task) bool {
	return func(o *serve.Task) bool {
		t, ok := o.Cmd.(*task)
		return ok && match(t)
	}
}
