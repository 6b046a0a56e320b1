package target

import (
	"fmt"
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// What initiators are told about changes (SPC-4 annex F).
var (
	senseModeChanged     = scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x2A, ASCQ: 0x01}
	senseCapacityChanged = scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x2A, ASCQ: 0x09}
	senseLUNsChanged     = scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x3F, ASCQ: 0x0E}
)

// AddLUN adds a logical unit and tells every session.
func (m *Machine) AddLUN(l LUN) error {
	u, err := m.newUnit(l)
	if err != nil {
		return err
	}
	m.inventoryChanged() // told on the units that are known
	m.units[l.Number] = u
	m.numbers = append(m.numbers, l.Number)
	return nil
}

// RemoveLUN ends what a logical unit does, unanswered, takes it away and tells
// every session. Its store is the caller's again.
func (m *Machine) RemoveLUN(n uint32) error {
	if m.units[n] == nil {
		return fmt.Errorf("target %s: no LUN %d", m.cfg.Name, n)
	}
	for _, s := range m.sessions {
		m.abortUnit(s, n)
		delete(s.attentions, n)
	}
	for _, p := range m.portals {
		delete(p.devices, n)
	}
	delete(m.units, n)
	m.numbers = slices.DeleteFunc(m.numbers, func(o uint32) bool { return o == n })
	m.inventoryChanged()
	return nil
}

func (m *Machine) inventoryChanged() {
	for _, n := range m.numbers {
		m.attention(n, senseLUNsChanged, nil)
	}
}

// Resize makes a LUN as large as its store is now, or size bytes if that is not
// 0, and tells every session when that is something new.
func (m *Machine) Resize(n uint32, size uint64) error {
	u := m.units[n]
	if u == nil {
		return fmt.Errorf("target %s: no LUN %d", m.cfg.Name, n)
	}
	d := u.Device
	d.Size = size
	if err := d.fill(m.cfg.Name, n, u.Store); err != nil {
		return err
	}
	if d.Size != u.Size {
		u.Device = d
		m.attention(n, senseCapacityChanged, nil)
	}
	return nil
}

// SetMode changes what a LUN allows, and tells every session when that is new.
func (m *Machine) SetMode(n uint32, readOnly, writeThrough, thick bool) error {
	u := m.units[n]
	if u == nil {
		return fmt.Errorf("target %s: no LUN %d", m.cfg.Name, n)
	}
	if u.ReadOnly != readOnly || u.WriteThrough != writeThrough || u.Thick != thick {
		u.ReadOnly, u.WriteThrough, u.Thick = readOnly, writeThrough, thick
		m.attention(n, senseModeChanged, nil)
	}
	return nil
}

// SetDepth changes the command window of the sessions to come.
func (m *Machine) SetDepth(depth int) error {
	if depth < 1 || depth > maxDepth {
		return fmt.Errorf("target %s: depth %d is out of 1..%d", m.cfg.Name, depth, maxDepth)
	}
	m.cfg.Depth = depth
	return nil
}

// RemovePortal ends the sessions of a portal and takes it out of what
// initiators are told. Its number may be given again.
func (m *Machine) RemovePortal(n int) error {
	p := m.portal(n)
	if p == nil {
		return errPortal
	}
	for _, s := range m.sessions {
		if s.portal == p {
			m.endSession(s, true)
		}
	}
	for c := range p.conns {
		c.Close() // of logins under way
	}
	group := p.Group
	p.Address, p.Group = "", 0
	if !slices.ContainsFunc(m.portals, func(o *portal) bool { return o.Group == group }) {
		delete(m.groups, group)
	}
	return nil
}

// gone reports whether the portal was removed and nothing of it is left.
func (p *portal) gone() bool { return p.Group == 0 && len(p.conns) == 0 }
