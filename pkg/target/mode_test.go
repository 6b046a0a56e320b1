package target

import (
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// selects sends MODE SELECT(6) with whole pages.
func (c *client) selects(pages ...[]byte) uint32 {
	list := (&scsi.Caching{}).Append(nil, false, pages...)
	return c.send(func(b []byte) int {
		clear(b[:16])
		b[0], b[1], b[4] = scsi.OpModeSelect6, 0x10, byte(len(list))
		return 6
	}, list)
}

func (c *client) caching() scsi.Caching {
	c.t.Helper()
	data, _ := c.ask(255, func(b []byte) int { return scsi.PutModeSense6(b, scsi.ModeAll, 255) })
	v, err := scsi.ParseCaching(data, false)
	if err != nil || !v.HasPage {
		c.t.Fatal(v, err)
	}
	return v
}

func TestAnInitiatorWriteProtectsTheUnit(t *testing.T) {
	r := newRig(t, nil)
	c, d := r.session(1, 1), r.session(2, 2)
	c.good(c.selects((&scsi.Control{SWP: true, Reordering: true}).Page()))
	d.fails(d.readCmd(0, 1), senseModeChanged)
	d.fails(d.writeCmd(0, block(1, 1)), senseSoftProtected)
	if !d.caching().ReadOnly {
		t.Error("WP is not told")
	}
	c.good(c.selects((&scsi.Control{Reordering: true}).Page()))
	d.fails(d.readCmd(0, 1), senseModeChanged)
	d.good(d.writeCmd(0, block(1, 1)))
}

// flushes counts the flushes of a store in memory.
type flushes struct {
	*RAM
	n int
}

func (f *flushes) Flush() error { f.n++; return nil }

func TestTheWriteCacheIsWhatTheModePageSays(t *testing.T) {
	st := &flushes{RAM: NewRAM(1 << 20)}
	r := newRig(t, func(c *Config) { c.LUNs[0].Store = st })
	c := r.session(1, 1)
	if c.good(c.writeCmd(0, block(1, 1))); !c.caching().WCE || st.n != 0 {
		t.Errorf("cached: WCE %v, %d flushes", c.caching().WCE, st.n)
	}
	c.good(c.selects((&scsi.Caching{}).Page())) // the cache is emptied, and off
	if c.good(c.writeCmd(0, block(1, 1))); c.caching().WCE || st.n != 2 {
		t.Errorf("off: WCE %v, %d flushes", c.caching().WCE, st.n)
	}
	c.good(c.selects((&scsi.Caching{WCE: true}).Page()))
	if c.good(c.writeCmd(0, block(1, 1))); !c.caching().WCE || st.n != 2 {
		t.Errorf("on again: WCE %v, %d flushes", c.caching().WCE, st.n)
	}
	r = newRig(t, func(c *Config) { c.LUNs[0].WriteThrough = true })
	c = r.session(1, 1)
	c.fails(c.selects((&scsi.Caching{WCE: true}).Page()), scsi.SenseInvalidParam) // not for an initiator to say
	if c.caching().WCE {
		t.Error("a write-through unit has a cache")
	}
}

func TestSenseDataComesInTheFormatAskedFor(t *testing.T) {
	r := newRig(t, nil)
	c := r.session(1, 1)
	c.good(c.selects((&scsi.Control{DescriptorSense: true, Reordering: true}).Page()))
	data, a := c.result(c.readCmd(1<<20, 1))
	if s, _ := scsi.ParseSense(data); a.Status != scsi.StatusCheckCondition || s != scsi.SenseOutOfRange || data[0] != 0x72 {
		t.Errorf("% x", data)
	}
	data, _ = c.ask(252, func(b []byte) int { clear(b[:16]); b[0], b[1], b[4] = scsi.OpRequestSense, 1, 252; return 6 })
	if data[0] != 0x72 {
		t.Errorf("REQUEST SENSE: % x", data)
	}
	c.sendTMF(pdu.TMFLUNReset, 0, 0)
	c.tmfDone(pdu.TMFComplete)
	if data, _ = c.result(c.readCmd(0, 1)); data[0] != 0x70 {
		t.Errorf("after a reset: % x", data)
	}
}

func TestModeSelectChangesAllOrNothing(t *testing.T) {
	r := newRig(t, nil)
	c := r.session(1, 1)
	bad := (&scsi.Caching{WCE: true, ReadDisable: true}).Page() // RCD is not changeable
	c.fails(c.selects((&scsi.Control{SWP: true, Reordering: true}).Page(), bad), scsi.SenseInvalidParam)
	c.good(c.writeCmd(0, block(1, 1)))
	c.fails(c.selects([]byte{0x1c, 2, 0, 0}), scsi.SenseInvalidParam) // no such page
	c.fails(c.selects((&scsi.Control{}).Page()[:8]), scsi.SenseParamLength)
	c.good(c.selects())
}

func TestCommandsThatAreListedAreThoseThatAreDecoded(t *testing.T) {
	listed := map[[2]int]bool{}
	for _, u := range commands {
		b := make([]byte, len(u.Usage))
		b[0] = u.Op()
		action := 0
		if u.HasAction {
			action = int(u.Action)
			b[1] = byte(action)
		}
		switch b[0] {
		case scsi.OpModeSelect6, scsi.OpModeSelect10:
			b[1] = 0x10
		}
		if _, bad, ok := scsi.DecodeCDB(b); !ok {
			t.Errorf("%02x/%02x is listed and refused: %v", b[0], action, bad)
		}
		listed[[2]int{int(b[0]), action}] = true
	}
	for op := range 256 {
		for action := range 32 {
			b := make([]byte, 16)
			b[0], b[1] = byte(op), byte(action)
			c, _, ok := scsi.DecodeCDB(b)
			switch {
			case !ok, c.Action == 0 && action != 0: // the byte holds flags
			case !listed[[2]int{op, action}]:
				t.Errorf("%02x/%02x is decoded and not listed", op, action)
			}
		}
	}
}

func TestSupportIsReportedForOneCommandOrAll(t *testing.T) {
	c := newRig(t, nil).session(1, 1)
	report := func(options, op byte, action uint16) func(b []byte) int {
		return func(b []byte) int {
			clear(b[:16])
			b[0], b[1], b[2], b[3], b[4], b[5], b[8] = scsi.OpMaintenanceIn, scsi.ActionReportOpcodes, options, op, byte(action>>8), byte(action), 16
			return 12
		}
	}
	all, _ := c.ask(4096, report(scsi.ReportAll, 0, 0))
	if n := (len(all) - 4) / 8; n != len(commands) {
		t.Errorf("%d commands, want %d", n, len(commands))
	}
	if one, _ := c.ask(64, report(scsi.ReportOpcode, scsi.OpRead16, 0)); one[1] != 3 || one[3] != 16 || one[4] != scsi.OpRead16 {
		t.Errorf("READ(16): % x", one)
	}
	if one, _ := c.ask(64, report(scsi.ReportAction|scsi.ReportTimeouts, scsi.OpPersistentReserveOut, scsi.ActionPreempt)); one[1] != 0x83 || len(one) != 4+10+12 {
		t.Errorf("PREEMPT: % x", one)
	}
	for _, k := range []struct {
		option, op byte
		action     uint16
	}{{scsi.ReportOpcode, 0x04, 0}, {scsi.ReportEither, scsi.OpRead16, 1}, {scsi.ReportAction, scsi.OpMaintenanceIn, 0x1f}} {
		if one, _ := c.ask(64, report(k.option, k.op, k.action)); len(one) != 4 || one[1] != 1 {
			t.Errorf("%+v: % x", k, one)
		}
	}
	read := func(put func(b []byte) int) uint32 {
		return c.command(pdu.SCSICommand{Final: true, Read: true, EDTL: 64}, put, nil)
	}
	c.fails(read(report(scsi.ReportOpcode, scsi.OpMaintenanceIn, 0)), scsi.SenseInvalidCDB)
	c.fails(read(report(scsi.ReportAction, scsi.OpRead16, 0)), scsi.SenseInvalidCDB)
}
