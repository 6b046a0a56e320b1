package subsystem

import "github.com/csi-mpath/csi-mpath/pkg/nvme"

// notice is the state of one kind of event for one controller: it waits to be
// told, or was told and is masked until the host has read its log page with
// RAE cleared (Base 5.1.2).
type notice struct{ waits, masked bool }

// notices are the events there are, and what Async Event Configuration must
// have for them; 0: nothing.
var notices = [...]struct {
	event  nvme.Event
	enable uint32
}{{nvme.NamespaceChanged, nvme.AsyncNamespace}, {nvme.ANAChanged, nvme.AsyncANA}, {nvme.DiscoveryChanged, nvme.AsyncDiscovery},
	{nvme.ReservationNoticed, 0}}

// The places in notices.
const (
	noticeNamespace = iota
	noticeANA
	noticeDiscovery
	noticeReservation
)

// asyncEvent takes an Asynchronous Event Request: it is answered when there is
// something to tell.
func (t *task) asyncEvent() {
	x := t.q.ctrl
	if len(x.async) >= maxAsync {
		t.answer(nvme.AsyncEventLimitExceeded.Final())
		return
	}
	t.list()
	x.async = append(x.async, t)
	t.m.tell(x)
}

// raise makes an event wait to be told.
func (m *Machine) raise(x *controller, which int) {
	if x.discovery != (which == noticeDiscovery) {
		return
	}
	x.notices[which].waits = true
	m.tell(x)
}

// tell answers requests with the events that wait and may be told.
func (m *Machine) tell(x *controller) {
	for i := range notices {
		n := &x.notices[i]
		if !n.waits || n.masked || !x.wants(notices[i].enable) || len(x.async) == 0 || x.over {
			continue
		}
		t := x.async[0]
		x.async = x.async[1:]
		n.waits, n.masked = false, true
		t.complete(nvme.Success, notices[i].event.Value())
	}
}

// wants reports whether the host asked for an event.
func (x *controller) wants(enable uint32) bool { return enable == 0 || x.events&enable != 0 }

// rearm is a log page that was read: what it told of needs no telling.
func (x *controller) rearm(page uint8) {
	for i := range notices {
		if notices[i].event.Log == page {
			x.notices[i] = notice{}
		}
	}
}

// namespaceChanged tells every controller that namespace id changed, came or went.
func (m *Machine) namespaceChanged(id uint32) {
	for _, x := range m.controllers {
		if !x.discovery {
			x.changed[id] = true
		}
		m.raise(x, noticeNamespace)
	}
}
