package target

import (
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// inform answers the commands that ask about the unit or the target.
func (m *Machine) inform(t *task) {
	switch t.cmd.Op {
	case scsi.OpInquiry:
		m.inquiry(t)
	case scsi.OpReportLUNs:
		m.reply(t, scsi.AppendReportLUNs(nil, m.wireLUNs(t)...))
	case scsi.OpRequestSense:
		s := scsi.Sense{}
		if t.unit == nil {
			s = scsi.SenseNoLUN
		}
		if t.cmd.Extended {
			m.reply(t, s.AppendDescriptor(nil))
			return
		}
		m.reply(t, s.AppendFixed(nil))
	case scsi.OpReadCapacity10:
		t.cmd.Alloc = 8
		m.reply(t, m.capacity(t).Append10(nil))
	case scsi.OpServiceActionIn16:
		if t.cmd.Action == scsi.ActionGetLBAStatus {
			m.lbaStatus(t)
			return
		}
		m.reply(t, m.capacity(t).Append16(nil))
	case scsi.OpModeSense6, scsi.OpModeSense10:
		m.modeSense(t)
	case scsi.OpMaintenanceIn:
		if t.cmd.Action == scsi.ActionReportOpcodes {
			m.reportCommands(t)
			return
		}
		g := m.portGroups()
		m.reply(t, g.Append(nil, t.cmd.Extended))
	case scsi.OpReadDefectData10, scsi.OpReadDefectData12:
		m.defects(t)
	default:
		m.check(t, scsi.SenseInvalidOpcode)
	}
}

func (m *Machine) wireLUNs(t *task) (out []scsi.LUN) {
	if t.cmd.Action == 1 { // only well known units: there are none
		return nil
	}
	for _, n := range m.numbers {
		out = append(out, m.units[n].wire)
	}
	return out
}

func (m *Machine) capacity(t *task) *scsi.Capacity {
	d := t.sess.portal.device(t.unit)
	return &scsi.Capacity{LastLBA: d.Size/uint64(d.BlockSize) - 1, BlockSize: d.BlockSize, PhysicalExp: d.PhysicalExp,
		LBPME: !t.unit.Thick, LBPRZ: !t.unit.Thick}
}

func (m *Machine) inquiry(t *task) {
	if t.unit == nil {
		none := scsi.Inquiry{Qualifier: 3, DeviceType: 0x1f, Version: 6}
		if t.cmd.EVPD {
			m.check(t, scsi.SenseInvalidCDB)
			return
		}
		m.reply(t, none.Append(nil))
		return
	}
	d := t.sess.portal.device(t.unit)
	if !t.cmd.EVPD {
		std := scsi.Inquiry{Version: 6, TPGS: 1, CmdQueue: true, Vendor: d.Vendor, Product: d.Product, Revision: d.Revision}
		m.reply(t, std.Append(nil))
		return
	}
	page, ok := m.vpd(t, d)
	if !ok {
		m.check(t, scsi.SenseInvalidCDB)
		return
	}
	m.reply(t, page)
}

func (m *Machine) vpd(t *task, d *Device) ([]byte, bool) {
	bs := uint64(d.BlockSize)
	switch t.cmd.Page {
	case scsi.PageSupported:
		return scsi.AppendSupportedPages(nil, scsi.PageSupported, scsi.PageSerial, scsi.PageDeviceID,
			scsi.PageBlockLimits, scsi.PageCharacteristics, scsi.PageProvisioning), true
	case scsi.PageSerial:
		return scsi.AppendSerial(nil, d.Serial), true
	case scsi.PageDeviceID:
		return scsi.AppendDeviceID(nil, m.designators(t.sess.portal, d)...), true
	case scsi.PageBlockLimits:
		l := scsi.BlockLimits{WriteSameNonZero: true, MaxCompareWrite: maxCompareWrite, MaxTransfer: d.MaxTransfer / uint32(bs), MaxWriteSame: maxZero / bs}
		if !t.unit.Thick {
			l.MaxUnmap, l.MaxUnmapDescriptors, l.UnmapGranule = maxUnmapBlocks, maxUnmapExtents, uint32(max(1, 4096/bs))
		}
		return l.Append(nil), true
	case scsi.PageCharacteristics:
		rate := uint16(0) // who knows what a file lies on
		if t.unit.memory != nil {
			rate = 1 // solid state
		}
		return scsi.AppendRotationRate(nil, rate), true
	case scsi.PageProvisioning:
		p := scsi.Provisioning{}
		if !t.unit.Thick {
			p = scsi.Provisioning{LBPU: true, LBPWS: true, LBPWS10: true, LBPRZ: true, Kind: 2}
		}
		return p.Append(nil), true
	}
	return nil, false
}

// designators are VPD page 83h: the unit's own, then the port's.
func (m *Machine) designators(p *portal, d *Device) (out []scsi.Designator) {
	for _, v := range []struct {
		kind byte
		id   string
	}{{scsi.DesignNAA, d.NAA}, {scsi.DesignEUI64, d.EUI}, {scsi.DesignT10Vendor, d.T10}} {
		if id, err := hex.DecodeString(v.id); err == nil && len(id) > 0 {
			out = append(out, scsi.Designator{CodeSet: 1, Type: v.kind, ID: id})
		}
	}
	if d.Name != "" {
		out = append(out, scsi.Designator{CodeSet: 3, Type: scsi.DesignSCSIName, ID: []byte(d.Name)})
	}
	be := func(v int) []byte { return []byte{0, 0, byte(v >> 8), byte(v)} }
	return append(out,
		scsi.Designator{CodeSet: 1, Association: scsi.OfPort, Type: scsi.DesignRelativePort, ID: be(p.index)},
		scsi.Designator{CodeSet: 1, Association: scsi.OfPort, Type: scsi.DesignPortGroup, ID: be(int(p.Group))},
		scsi.Designator{CodeSet: 3, Association: scsi.OfPort, Type: scsi.DesignSCSIName,
			ID: fmt.Appendf(nil, "%.200s,t,0x%04x", m.cfg.Name, p.TPGT)})
}

func (m *Machine) portGroups() scsi.PortGroups {
	g := scsi.PortGroups{TransitionTime: m.implicit}
	for id, state := range m.groups {
		pg := scsi.PortGroup{ID: id, State: state, Supported: 0x8f, Status: 2}
		for _, p := range m.portals {
			if p.Group == id && len(pg.Ports) < scsi.MaxPorts {
				pg.Ports = append(pg.Ports, uint16(p.index))
			}
		}
		g.Groups = append(g.Groups, pg)
	}
	slices.SortFunc(g.Groups, func(a, b scsi.PortGroup) int { return int(a.ID) - int(b.ID) })
	return g
}
