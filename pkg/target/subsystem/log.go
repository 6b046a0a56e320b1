package subsystem

import (
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
)

// getLog does Get Log Page (Base 5.1.12).
func (t *task) getLog() {
	r := nvme.ParseLogRequest(&t.cmd)
	page, ok := t.page(&r)
	switch {
	case !ok:
		t.answer(nvme.InvalidLogPage.Final())
		return
	case r.Offset%4 != 0 || r.Offset > uint64(len(page)):
		t.answer(nvme.InvalidField.Final())
		return
	}
	x := t.q.ctrl
	if !r.Retain {
		x.rearm(r.Page)
		switch r.Page {
		case nvme.LogChangedNamespaces:
			clear(x.changed)
		case nvme.LogReservation:
			x.noticeRead()
		}
	}
	out := make([]byte, r.Len)
	copy(out, page[r.Offset:])
	m := t.m
	t.reply(out)
	m.tell(x)
}

// page is the whole of a log page.
func (t *task) page(r *nvme.LogRequest) (b []byte, ok bool) {
	m, x := t.m, t.q.ctrl
	switch {
	case r.Page == nvme.LogError:
		for i := len(x.errors) - 1; i >= 0; i-- {
			b = x.errors[i].Append(b)
		}
		return append(b, make([]byte, maxErrors*nvme.ErrorEntryLen-len(b))...), true
	case r.Page == nvme.LogDiscovery && x.discovery:
		return m.discoveryLog(x), true
	case x.discovery:
		return nil, false
	case r.Page == logHealth || r.Page == logFirmware:
		return make([]byte, 512), true // nothing to say
	case r.Page == nvme.LogChangedNamespaces:
		return nvme.AppendChanged(nil, x.changedList()...), true
	case r.Page == nvme.LogANA:
		l := m.anaLog(x.portal)
		return l.Append(nil, r.Specific&1 != 0), true
	case r.Page == nvme.LogReservation:
		return x.noticePage(), true
	}
	return nil, false
}

// Pages that hosts read and that have nothing to say here.
const (
	logHealth   = 0x02
	logFirmware = 0x03
)

func (x *controller) changedList() (ids []uint32) {
	for id := range x.changed {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// logError notes a command that failed.
func (t *task) logError(st nvme.Status) {
	x := t.q.ctrl
	if x == nil {
		return
	}
	x.errorNo++
	e := nvme.ErrorEntry{Count: x.errorNo, SQID: t.q.id, CID: t.cmd.CID, Status: st, Location: 0xFFFF, NSID: t.cmd.NSID}
	if t.ns != nil {
		e.LBA = t.cmd.LBA()
	}
	if x.errors = append(x.errors, e); len(x.errors) > maxErrors {
		x.errors = slices.Delete(x.errors, 0, 1)
	}
}

// anaLog is the ANA log as a portal has it: the groups that have namespaces.
func (m *Machine) anaLog(p *portal) nvme.ANALog {
	l := nvme.ANALog{Change: m.anaChanges}
	for _, id := range m.ids {
		ana := m.namespaces[id].ANAGroup
		g := l.Group(ana)
		if g == nil {
			l.Groups = append(l.Groups, nvme.ANAGroup{ID: ana, State: m.state(p, ana)})
			g = &l.Groups[len(l.Groups)-1]
			if v := m.groups[groupKey{p.Group, ana}]; v != nil {
				g.Change = v.change
			}
		}
		g.NSIDs = append(g.NSIDs, id)
	}
	slices.SortFunc(l.Groups, func(a, b nvme.ANAGroup) int { return int(a.ID) - int(b.ID) })
	return l
}
