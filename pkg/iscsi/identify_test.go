package iscsi

import (
	"encoding/binary"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// unit answers the commands of Identify.
func (f *fake) unit(refuse func(d scsi.Command) bool) {
	attentions := []scsi.Sense{{Key: 6, ASC: 0x29, ASCQ: 1}, {Key: 6, ASC: 0x29, ASCQ: 4}, {Key: 6, ASC: 0x2a, ASCQ: 1},
		{Key: 6, ASC: 0x3f, ASCQ: 0x0e}, {Key: 2, ASC: 4, ASCQ: 1}}
	f.handle = func(c *fakeConn, h *pdu.SCSICommand, _ []byte) bool {
		fail := func(s scsi.Sense) {
			c.send(&pdu.SCSIResponse{ITT: h.ITT, Status: scsi.StatusCheckCondition, Window: c.window(true)}, s.AppendFixed([]byte{0, scsi.SenseLen}))
		}
		if len(attentions) > 0 {
			fail(attentions[0])
			attentions = attentions[1:]
			return true
		}
		d, bad, ok := scsi.DecodeCDB(h.CDB[:])
		if !ok || refuse(d) {
			if ok {
				bad = scsi.SenseInvalidOpcode
			}
			fail(bad)
			return true
		}
		if b := unitData(d); b != nil {
			c.data(h, b[:min(len(b), int(d.Alloc))])
			return true
		}
		return false
	}
}

func unitData(d scsi.Command) []byte {
	capacity := scsi.Capacity{LastLBA: 1<<33 - 1, BlockSize: 512, PhysicalExp: 3, LBPME: true, LBPRZ: true}
	caching := scsi.Caching{WCE: true, DPOFUA: true}
	limits := scsi.BlockLimits{MaxTransfer: 8192, MaxUnmap: 1 << 20, MaxUnmapDescriptors: 1, MaxWriteSame: 1 << 16}
	groups := scsi.PortGroups{Groups: []scsi.PortGroup{{ID: 2, State: scsi.NonOptimized, Ports: []uint16{3}}}}
	prov := scsi.Provisioning{LBPU: true}
	switch d.Op {
	case scsi.OpInquiry:
		inq := scsi.Inquiry{TPGS: 1, Vendor: "TEST", Product: "unit"}
		if !d.EVPD {
			return inq.Append(nil)
		}
		switch d.Page {
		case scsi.PageSupported:
			return scsi.AppendSupportedPages(nil, 0, 0x80, 0x83, 0xb0, 0xb2)
		case scsi.PageSerial:
			return scsi.AppendSerial(nil, strings.Repeat("S", 250)+"123456789") // longer than asked for first
		case scsi.PageDeviceID:
			return scsi.AppendDeviceID(nil, scsi.Designator{CodeSet: 1, Type: scsi.DesignNAA, ID: []byte{0x60, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
				scsi.Designator{CodeSet: 1, Association: scsi.OfPort, Type: scsi.DesignPortGroup, ID: []byte{0, 0, 0, 2}})
		case scsi.PageBlockLimits:
			return limits.Append(nil)
		case scsi.PageProvisioning:
			return prov.Append(nil)
		}
	case scsi.OpReadCapacity10:
		return capacity.Append10(nil)
	case scsi.OpServiceActionIn16:
		return capacity.Append16(nil)
	case scsi.OpModeSense6:
		return caching.Append(nil, false, caching.Page())
	case scsi.OpModeSense10:
		return caching.Append(nil, true, caching.Page())
	case scsi.OpMaintenanceIn:
		return groups.Append(nil, d.Extended)
	case scsi.OpReportLUNs:
		return scsi.AppendReportLUNs(nil, 20<<48, 0x412c<<48)
	}
	return nil
}

func TestIdentifyReadsEverythingPastUnitAttentions(t *testing.T) {
	for name, refuse := range map[string]func(scsi.Command) bool{
		"all there": func(scsi.Command) bool { return false },
		"old unit":  func(d scsi.Command) bool { return d.Op == scsi.OpModeSense6 || d.Extended },
	} {
		f := newFake(t)
		f.unit(refuse)
		s := f.dial(f.config())
		id, err := s.Identify(testCtx(t), 1<<48)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if id.Target != f.config().TargetName || id.LUN != 1<<48 || id.Device.NAA != "600102030405060708090a0b0c0d0e0f" || len(id.Serial) != 259 ||
			id.LastLBA != 1<<33-1 || !id.WCE || !id.DPOFUA || !id.HasLimits || !id.LBPU || id.Group != 2 || len(id.Groups.Groups) != 1 {
			t.Errorf("%s: %+v", name, id)
		}
		if id.Evidence&blk.CacheLost == 0 || id.Evidence&blk.IdentityChanged != 0 {
			t.Errorf("%s: evidence %b", name, id.Evidence)
		}
		if luns, err := s.ReportLUNs(testCtx(t)); err != nil || len(luns) != 2 || luns[1] != 0x412c<<48 {
			t.Errorf("%s: %v %v", name, luns, err)
		}
	}
}

// The kernel's target does not count the extended header.
func TestAnExtendedAnswerThatIsCutIsAskedForInThePlainForm(t *testing.T) {
	f := newFake(t)
	f.unit(func(scsi.Command) bool { return false })
	unit := f.handle
	var cut atomic.Int32
	f.handle = func(c *fakeConn, h *pdu.SCSICommand, data []byte) bool {
		d, _, ok := scsi.DecodeCDB(h.CDB[:])
		if !ok || d.Op != scsi.OpMaintenanceIn || !d.Extended {
			return unit(c, h, data)
		}
		b := unitData(d)
		binary.BigEndian.PutUint32(b, uint32(len(b)-8))
		c.data(h, b[:len(b)-4])
		cut.Add(1)
		return true
	}
	id, err := f.dial(f.config()).Identify(testCtx(t), 1<<48)
	if err != nil || len(id.Groups.Groups) != 1 || id.Groups.Groups[0].ID != 2 || cut.Load() == 0 {
		t.Errorf("%v, groups %+v, cut %d times", err, id, cut.Load())
	}
}

func TestIdentifyTellsWhatIsMissing(t *testing.T) {
	for name, refuse := range map[string]func(scsi.Command) bool{
		"no capacity": func(d scsi.Command) bool { return d.Op == scsi.OpReadCapacity10 || d.Op == scsi.OpServiceActionIn16 },
		"saturated":   func(d scsi.Command) bool { return d.Op == scsi.OpServiceActionIn16 },
		"no inquiry":  func(d scsi.Command) bool { return d.Op == scsi.OpInquiry },
	} {
		f := newFake(t)
		f.unit(refuse)
		s := f.dial(f.config())
		if _, err := s.Identify(testCtx(t), 1<<48); err == nil || !strings.Contains(err.Error(), "LUN 1") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestIdentifyBeginsAgainWhenTheUnitBecomesAnotherOneMeanwhile(t *testing.T) {
	f := newFake(t)
	f.unit(func(scsi.Command) bool { return false })
	usual, changed := f.handle, false
	f.handle = func(c *fakeConn, h *pdu.SCSICommand, data []byte) bool {
		d, _, _ := scsi.DecodeCDB(h.CDB[:])
		switch {
		case d.Op == scsi.OpServiceActionIn16 && !changed: // behind the pages, as a unit attention comes
			changed = true
			c.send(&pdu.SCSIResponse{ITT: h.ITT, Status: scsi.StatusCheckCondition, Window: c.window(true)},
				scsi.Sense{Key: 6, ASC: 0x3f, ASCQ: 3}.AppendFixed([]byte{0, scsi.SenseLen}))
			return true
		case d.Op == scsi.OpInquiry && d.EVPD && d.Page == scsi.PageSerial && changed:
			b := scsi.AppendSerial(nil, "another")
			c.data(h, b[:min(len(b), int(d.Alloc))])
			return true
		}
		return usual(c, h, data)
	}
	id, err := f.dial(f.config()).Identify(testCtx(t), 1<<48)
	if err != nil || id.Serial != "another" {
		t.Fatalf("%v, %+v", err, id)
	}
}

func TestResumeDoesNotOpenAUnitThatNewEvidenceCameFor(t *testing.T) {
	f := newFake(t)
	l := f.dial(f.config()).LUN(0, 1, newWaiter())
	l.unit.Evidence(blk.IdentityChanged)
	asked := l.Gate()
	l.unit.Evidence(blk.IdentityChanged) // while it is identified
	if l.Resume(asked); l.Gate() == 0 {
		t.Fatal("opened on the word of an identification that began before")
	}
	if l.Resume(l.Gate()); l.Gate() != 0 {
		t.Fatal("stays shut")
	}
}
