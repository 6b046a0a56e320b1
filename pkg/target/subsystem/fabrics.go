package subsystem

import (
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
)

// Fields of Connect that a refusal names.
var (
	badQueueID    = nvme.ConnectRefusal{Offset: 42}
	badQueueSize  = nvme.ConnectRefusal{Offset: 44}
	badHostID     = nvme.ConnectRefusal{Offset: 0, InData: true}
	badController = nvme.ConnectRefusal{Offset: 16, InData: true}
	badSubsystem  = nvme.ConnectRefusal{Offset: 256, InData: true}
	badHost       = nvme.ConnectRefusal{Offset: 512, InData: true}
)

// fabricsAllowed reports whether a Fabrics command may come on the queue.
func (c *conn) fabricsAllowed(f nvme.FabricsType) nvme.Status {
	switch f {
	case nvme.AuthSend, nvme.AuthReceive:
		return nvme.Success
	case nvme.PropertyGet, nvme.PropertySet:
		if c.unproven() {
			return nvme.AuthRequired.Final()
		}
		if c.q.id != 0 {
			return nvme.InvalidField.Final()
		}
		return nvme.Success
	case nvme.Disconnect:
		if c.q.id == 0 {
			return nvme.InvalidQueueID.Final()
		}
		return nvme.Success
	case nvme.Connect:
		return nvme.SequenceError.Final()
	}
	return nvme.InvalidOpcode.Final()
}

func (t *task) fabricsWants() (uint32, nvme.Status) {
	switch t.cmd.Fabrics() {
	case nvme.Connect:
		return nvme.ConnectDataLen, nvme.Success
	case nvme.AuthSend, nvme.AuthReceive:
		return t.authWants()
	}
	return 0, nvme.Success
}

// fabrics does a Fabrics command.
func (t *task) fabrics() {
	switch t.cmd.Fabrics() {
	case nvme.Connect:
		t.connect()
	case nvme.PropertyGet:
		t.propertyGet()
	case nvme.PropertySet:
		t.propertySet()
	case nvme.AuthSend, nvme.AuthReceive:
		t.authenticate()
	default:
		t.disconnect()
	}
}

// connect opens a queue (Base 6.3).
func (t *task) connect() {
	c, bad := nvme.ParseConnect(&t.cmd)
	if !bad.OK() {
		t.answer(bad)
		return
	}
	var d nvme.ConnectData
	if err := d.Decode(t.data); err != nil {
		t.refuse(badSubsystem)
		return
	}
	switch p := t.conn.portal; {
	case !p.refuse.OK():
		t.answer(p.refuse)
	case c.SQSize == 0:
		t.refuse(badQueueSize)
	case c.QueueID == 0:
		t.connectAdmin(&c, &d)
	default:
		t.connectIO(&c, &d)
	}
}

// refuse answers Connect and names the field at fault.
func (t *task) refuse(f nvme.ConnectRefusal) { t.complete(nvme.ConnectInvalid.Final(), f.Value()) }

// connectAdmin makes a controller.
func (t *task) connectAdmin(c *nvme.ConnectCommand, d *nvme.ConnectData) {
	m := t.m
	discovery := d.Subsystem == nvme.DiscoveryNQN
	switch {
	case !discovery && (d.Subsystem != m.cfg.Name || m.directory != nil):
		t.refuse(badSubsystem)
		return
	case d.HostID == [16]byte{}:
		t.refuse(badHostID)
		return
	case d.ControllerID != nvme.AnyController:
		t.refuse(badController)
		return
	case !discovery && !m.admitsHost(d.Host, d.HostID):
		t.answer(nvme.InvalidHost.Final())
		return
	case c.KeepAlive > maxKeepAlive:
		t.answer(nvme.KeepAliveInvalid.Final())
		return
	}
	x := m.newController()
	if x == nil {
		t.answer(nvme.ControllerBusy)
		return
	}
	x.portal, x.host, x.hostID, x.discovery = t.conn.portal, d.Host, d.HostID, discovery
	x.setKeepAlive(c.KeepAlive)
	x.seen = m.Now()
	m.Rouse()
	t.open(x, c, adminDepth)
}

// setKeepAlive takes KATO in ms, rounded up to KAS.
func (x *controller) setKeepAlive(ms uint32) {
	d := time.Duration(ms) * time.Millisecond
	x.keepAlive = (d + keepAliveStep - 1) / keepAliveStep * keepAliveStep
}

// connectIO adds an I/O queue to a controller.
func (t *task) connectIO(c *nvme.ConnectCommand, d *nvme.ConnectData) {
	x := t.m.controllers[d.ControllerID]
	switch {
	case x == nil || x.over || x.portal != t.conn.portal || x.discovery:
		t.refuse(badController)
	case d.Subsystem != t.m.cfg.Name:
		t.refuse(badSubsystem)
	case d.Host != x.host:
		t.refuse(badHost)
	case d.HostID != x.hostID:
		t.refuse(badHostID)
	case !x.usable():
		t.answer(nvme.SequenceError.Final())
	case int(c.QueueID) > x.granted || x.queues[c.QueueID] != nil:
		t.refuse(badQueueID)
	case int(c.SQSize) >= t.m.cfg.Depth:
		t.refuse(badQueueSize)
	default:
		t.open(x, c, t.m.cfg.Depth)
	}
}

// open makes the connection's queue one of the controller's.
func (t *task) open(x *controller, c *nvme.ConnectCommand, most int) {
	q, k := t.q, t.conn
	a, err := t.m.authFor(x)
	if err != nil { // of the configuration
		t.m.forget(x)
		t.answer(nvme.InternalError.Final())
		return
	}
	q.id, q.ctrl = c.QueueID, x
	q.size = min(int(c.SQSize)+1, most)
	q.noFlow = c.Attributes&nvme.ConnectNoFlowControl != 0
	q.head = 1 % uint16(q.size)
	x.queues[q.id] = q
	k.auth = a
	t.complete(nvme.Success, nvme.ConnectResult{ControllerID: x.id, AuthRequired: a != nil}.Value())
}

// disconnect deletes an I/O queue (Base 6.4).
func (t *task) disconnect() {
	q, c := t.q, t.conn
	x := q.ctrl
	t.m.endOthers(q, t)
	delete(x.queues, q.id)
	t.answer(nvme.Success)
	c.Close()
}

// endOthers ends the tasks of a queue but one.
func (m *Machine) endOthers(q *queue, but *task) {
	for _, t := range q.tasks {
		if t != but {
			t.Abort()
		}
	}
}

// caps are the controller's capabilities.
func (m *Machine) caps() nvme.Caps {
	return nvme.Caps{MaxEntries: uint32(m.cfg.Depth), Contiguous: true, Ready: 15 * time.Second,
		MinPageShift: 12, MaxPageShift: 12, CommandSets: 1}
}

// version is what the controller says it conforms to.
var version = nvme.Version(1, 4, 0)

func (t *task) propertyGet() {
	p, bad := nvme.ParseProperty(&t.cmd)
	if !bad.OK() {
		t.answer(bad)
		return
	}
	x := t.q.ctrl
	var v uint64
	switch p.Offset {
	case nvme.RegCAP:
		v = t.m.caps().Value()
	case nvme.RegVS:
		v = uint64(version)
	case nvme.RegCC:
		v = uint64(x.cc.Value())
	case nvme.RegCSTS:
		v = uint64(nvme.ControllerState{Ready: x.ready, Shutdown: x.shutdown}.Value())
	default:
		bad = nvme.InvalidField.Final()
	}
	if p.Size != nvme.PropertySize(p.Offset) {
		bad = nvme.InvalidField.Final()
	}
	if !bad.OK() {
		v = 0
	}
	t.complete(bad, v)
}

func (t *task) propertySet() {
	p, bad := nvme.ParseProperty(&t.cmd)
	if bad.OK() && (p.Offset != nvme.RegCC || p.Size != 4) {
		bad = nvme.InvalidField.Final()
	}
	if bad.OK() {
		bad = t.m.configure(t.q.ctrl, uint32(p.Value))
	}
	t.answer(bad)
}
