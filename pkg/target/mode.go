package target

import (
	"bytes"

	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// modePage is a mode page of a unit: what it says, and which bits MODE SELECT
// may change.
type modePage struct{ now, changeable []byte }

// modePages are the caching and the control page.
func (m *Machine) modePages(u *unit) []modePage {
	caching := scsi.Caching{WCE: u.cached()}
	control := scsi.Control{SWP: u.swp, DescriptorSense: u.descriptors, Reordering: true}
	may := scsi.Caching{WCE: !u.WriteThrough && !u.durable()}
	mayControl := scsi.Control{SWP: true, DescriptorSense: true}
	return []modePage{{caching.Page(), may.Page()}, {control.Page(), mayControl.Page()}}
}

// durable reports whether the store itself makes each write durable.
func (u *unit) durable() bool {
	d, ok := u.Store.(interface{ WriteThrough() bool })
	return ok && d.WriteThrough()
}

// cached reports whether writes may be lost until a flush: what WCE says.
func (u *unit) cached() bool { return !u.uncached() && !u.durable() }

// modeSense answers MODE SENSE.
func (m *Machine) modeSense(t *task) {
	u := t.unit
	if t.cmd.PageControl == 3 {
		m.check(t, senseNoSaving)
		return
	}
	of := u
	if t.cmd.PageControl == 2 { // default values
		of = &unit{LUN: u.LUN}
	}
	var pages [][]byte
	for _, p := range m.modePages(of) {
		switch {
		case t.cmd.Page != scsi.ModeAll && t.cmd.Page != p.now[0]:
		case t.cmd.PageControl == 1:
			pages = append(pages, p.changeable)
		default:
			pages = append(pages, p.now)
		}
	}
	if len(pages) == 0 {
		m.check(t, scsi.SenseInvalidCDB)
		return
	}
	c := scsi.Caching{ReadOnly: m.protected(t) != scsi.Sense{}, DPOFUA: true}
	m.reply(t, c.Append(nil, t.cmd.Op == scsi.OpModeSense10, pages...))
}

// modeSelect does MODE SELECT: all of the list or nothing. Other sessions are
// told.
func (m *Machine) modeSelect(t *task) {
	u := t.unit
	data := t.data[:min(uint32(len(t.data)), t.need)]
	list, err := scsi.ParseModeSelect(nil, data, t.cmd.Op == scsi.OpModeSelect10)
	if err != nil {
		m.check(t, scsi.SenseParamLength)
		return
	}
	for _, p := range list {
		if !m.mayChange(u, p) {
			m.check(t, scsi.SenseInvalidParam)
			return
		}
	}
	was := [3]bool{u.noCache, u.swp, u.descriptors}
	for _, p := range list {
		switch p[0] & 0x3f {
		case scsi.ModeCaching:
			if !u.WriteThrough && !u.durable() {
				u.noCache = p[2]&0x04 == 0
			}
		case scsi.ModeControl:
			u.descriptors, u.swp = p[2]&0x04 != 0, p[4]&0x08 != 0
		}
	}
	if was != [3]bool{u.noCache, u.swp, u.descriptors} {
		m.attention(u.Number, senseModeChanged, t.sess)
	}
	if u.noCache && !was[0] {
		t.durable = true // what is in the cache is written before it is off
		m.run(t, (*task).settle)
		return
	}
	m.good(t)
}

// mayChange reports whether a page of MODE SELECT changes only what it may.
func (m *Machine) mayChange(u *unit, p []byte) bool {
	for _, have := range m.modePages(u) {
		if have.now[0] != p[0]&0x7f {
			continue
		}
		if len(p) != len(have.now) {
			return false
		}
		kept := bytes.Clone(p)
		for i := range kept {
			kept[i] = p[i]&^have.changeable[i] | have.now[i]&have.changeable[i]
		}
		return bytes.Equal(kept[1:], have.now[1:])
	}
	return false
}

// startStop does START STOP UNIT for a medium that cannot be ejected (SBC-3
// 5.25): a stopped unit refuses what needs the medium.
func (m *Machine) startStop(t *task) {
	if t.cmd.Bits>>4 != 0 || t.cmd.Bits&scsi.UnitLoEj != 0 { // power conditions, eject
		m.check(t, scsi.SenseInvalidCDB)
		return
	}
	u := t.unit
	u.stopped = t.cmd.Bits&scsi.UnitStart == 0
	t.durable = u.stopped && t.cmd.Bits&scsi.UnitNoFlush == 0
	m.run(t, (*task).settle)
}
