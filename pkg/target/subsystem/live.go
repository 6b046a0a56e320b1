package subsystem

import (
	"fmt"
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// Answer answers the commands of match with a status, without executing them.
func (m *Machine) Answer(match serve.Match, st nvme.Status) error {
	return m.AnswerWith(match, func(c serve.Command) {
		if t, ok := c.(*task); ok {
			t.answer(st)
		}
	})
}

// namespace finds a namespace or says that there is none.
func (m *Machine) namespace(id uint32) (*namespace, error) {
	if n := m.namespaces[id]; n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("target %s: no namespace %d", m.cfg.Name, id)
}

// AddNamespace adds a namespace and tells every controller.
func (m *Machine) AddNamespace(n Namespace) error {
	if err := m.insert(n); err != nil {
		return err
	}
	m.anaChanges++
	m.namespaceChanged(n.ID)
	return nil
}

// RemoveNamespace takes a namespace away and tells every controller. Its
// commands end with InvalidNamespace, those whose job runs when that is over.
// Its store is the caller's again.
func (m *Machine) RemoveNamespace(id uint32) error {
	n, err := m.namespace(id)
	if err != nil {
		return err
	}
	n.gone = true
	delete(m.namespaces, id)
	m.ids = slices.DeleteFunc(m.ids, func(o uint32) bool { return o == id })
	for _, p := range m.portals {
		delete(p.devices, id)
	}
	for _, x := range m.controllers {
		x.each(func(q *queue) {
			for _, t := range q.tasks {
				if t.ns == n {
					t.withdrawn()
				}
			}
		})
	}
	m.anaChanges++
	m.namespaceChanged(id)
	return nil
}

// withdrawn ends a command whose namespace is gone.
func (t *task) withdrawn() {
	switch {
	case t.conn == nil:
		t.Abort()
	case t.Waits() && !t.Running:
		t.m.Cancel(&t.Task)
		t.answer(nvme.InvalidNamespace.Final())
	}
}

// Resize makes a namespace as large as its store is now, or size bytes if that
// is not 0, and tells every controller when that is something new.
func (m *Machine) Resize(id uint32, size uint64) error {
	n, err := m.namespace(id)
	if err != nil {
		return err
	}
	d := n.Device
	d.Size = size
	if err := d.fill(m.cfg.Name, id, n.Store); err != nil {
		return err
	}
	if d.Size != n.Size {
		n.Device = d
		m.namespaceChanged(id)
	}
	return nil
}

// SetMode changes what a namespace allows, and tells every controller when that
// is new.
func (m *Machine) SetMode(id uint32, readOnly, writeThrough, thick bool) error {
	n, err := m.namespace(id)
	if err != nil {
		return err
	}
	writeThrough = writeThrough || m.cfg.NoCache
	if n.ReadOnly != readOnly || n.WriteThrough != writeThrough || n.Thick != thick {
		n.ReadOnly, n.WriteThrough, n.Thick = readOnly, writeThrough, thick
		m.namespaceChanged(id)
	}
	return nil
}

// SetDevice makes namespace id say other things of itself at one portal (0: at
// all), without telling anybody, as when an NSID is given to another namespace:
// NamespaceChanged tells. Empty fields have their defaults, as in Config.
func (m *Machine) SetDevice(portal int, id uint32, d Device) error {
	n, err := m.namespace(id)
	if err != nil {
		return err
	}
	if err := d.fill(m.cfg.Name, id, n.Store); err != nil {
		return err
	}
	if portal == 0 {
		n.Device = d
		for _, p := range m.portals {
			delete(p.devices, id)
		}
		return nil
	}
	p := m.portal(portal)
	if p == nil {
		return errPortal
	}
	p.devices[id] = d
	return nil
}

// DeviceAt is what a namespace says of itself at a portal.
func (m *Machine) DeviceAt(portal int, id uint32) (Device, error) {
	n, err := m.namespace(id)
	p := m.portal(portal)
	if err != nil || p == nil {
		return Device{}, errPortal
	}
	return *p.device(n), nil
}

// NamespaceChanged tells the controllers of a portal (0: all) that namespace id
// changed, whether it did or not.
func (m *Machine) NamespaceChanged(portal int, id uint32) {
	for _, x := range m.controllers {
		if !x.discovery && (portal == 0 || x.portal.index == portal) {
			x.changed[id] = true
			m.raise(x, noticeNamespace)
		}
	}
}

// SetANA changes the state of an ANA group (0: each that has a namespace) at the
// portals of a group, and tells their controllers.
func (m *Machine) SetANA(portals uint16, ana uint32, state nvme.AccessState) {
	ids := []uint32{ana}
	if ana == 0 {
		ids = nil
		for _, id := range m.ids {
			ids = append(ids, m.namespaces[id].ANAGroup)
		}
	}
	m.anaChanges++
	for _, id := range ids {
		m.groups[groupKey{portals, id}] = &group{state, m.anaChanges}
	}
	for _, x := range m.controllers {
		if x.portal.Group == portals {
			m.raise(x, noticeANA)
		}
	}
}

// ANA is the state of an ANA group at a portal.
func (m *Machine) ANA(portal int, ana uint32) (nvme.AccessState, error) {
	p := m.portal(portal)
	if p == nil {
		return 0, errPortal
	}
	return m.state(p, ana), nil
}

// RefuseConnects makes a portal answer each Connect with a status; Success ends
// that.
func (m *Machine) RefuseConnects(portal int, st nvme.Status) error {
	p := m.portal(portal)
	if p == nil {
		return errPortal
	}
	p.refuse = st
	return nil
}

// SetQueues changes how many I/O queues the controllers to come are granted.
func (m *Machine) SetQueues(n int) error {
	if n < 1 || n > maxQueues {
		return fmt.Errorf("target %s: %d queues are out of 1..%d", m.cfg.Name, n, maxQueues)
	}
	m.cfg.Queues = n
	return nil
}

// SetDepth changes the size of the I/O queues to come, entries.
func (m *Machine) SetDepth(depth int) error {
	if depth < 2 || depth > maxDepth {
		return fmt.Errorf("target %s: depth %d is out of 2..%d", m.cfg.Name, depth, maxDepth)
	}
	m.cfg.Depth = depth
	return nil
}

// Controllers counts the controllers of a portal (0: all) that have a
// connection; discovery controllers do not count.
func (m *Machine) Controllers(portal int) (n int) {
	for _, x := range m.controllers {
		if !x.discovery && !x.over && (portal == 0 || x.portal.index == portal) {
			n++
		}
	}
	return n
}

// Load counts the I/O commands of a portal (0: all) that went past its ANA
// states, and those that these refused.
func (m *Machine) Load(portal int) (taken, refused uint64) {
	for _, p := range m.portals {
		if portal == 0 || p.index == portal {
			taken += p.taken
			refused += p.refused
		}
	}
	return taken, refused
}

// EndControllers ends the controllers of a portal (0: all) as if the target
// had reset them: their connections are reset and their tasks end.
func (m *Machine) EndControllers(portal int) {
	for _, x := range m.controllers {
		if portal == 0 || x.portal.index == portal {
			m.end(x)
		}
	}
}
