package target

import (
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// first is the first byte of a block in the store.
func (r *rig) first(lba uint64) byte {
	b := make([]byte, 512)
	_ = r.ram.ReadAt(b, lba*512)
	return b[0]
}

// stale holds a write of 1s, breaks its connection, logs in again, writes 2s
// there and releases: what is in the store then?
func stale(t *testing.T, late bool, again func(r *rig) *client) (r *rig, got byte) {
	t.Helper()
	r = newRig(t, nil)
	if _, err := r.AddPortal(PortalConfig{TPGT: 2}); err != nil {
		t.Fatal(err)
	}
	a := r.session(1, 1)
	h, err := r.Hold(Match{Kind: Writes, Count: 1}, late, nil)
	if err != nil {
		t.Fatal(err)
	}
	a.writeCmd(0, block(1, 1))
	a.c.Gone()
	b := again(r)
	b.good(b.writeCmd(0, block(2, 1)))
	h.Release()
	b.good(b.readCmd(0, 1))
	return r, r.first(0)
}

func TestAHeldWriteExecutesLateWhenNothingFencesIt(t *testing.T) {
	for name, again := range map[string]func(r *rig) *client{
		"another ISID":                         func(r *rig) *client { return r.session(1, 2) },
		"another portal group":                 func(r *rig) *client { return r.session(3, 1) },
		"another initiator with the same ISID": func(r *rig) *client { c := r.dial(1); c.name = "iqn.other"; c.mustLogin(); return c },
	} {
		r, got := stale(t, true, again)
		if got != 1 || r.Stats().LateWrites != 1 || r.Late() != 0 {
			t.Errorf("%s: block is %d, %+v", name, got, r.Stats())
		}
	}
}

func TestReinstatementEndsTheOldTasks(t *testing.T) {
	for name, portal := range map[string]int{"same portal": 1, "sibling portal of the group": 2} {
		r, got := stale(t, true, func(r *rig) *client { return r.session(portal, 1) })
		if s := r.Stats(); got != 2 || s.LateWrites != 0 || s.Reinstated != 1 || r.Late() != 0 || r.Buffers.Held() != 0 {
			t.Errorf("%s: block is %d, %+v", name, got, s)
		}
	}
}

func TestAHeldWriteEndsWithItsConnectionUnlessToldToStay(t *testing.T) {
	r, got := stale(t, false, func(r *rig) *client { return r.session(1, 2) })
	if got != 2 || r.Stats().LateWrites != 0 {
		t.Errorf("block is %d, %+v", got, r.Stats())
	}
}

func TestReinstatementClosesTheOldConnectionBeforeItAnswers(t *testing.T) {
	r := newRig(t, nil)
	a := r.session(1, 1)
	if _, err := r.Hold(Match{}, true, nil); err != nil {
		t.Fatal(err)
	}
	a.writeCmd(0, block(1, 1))
	r.Ping(1) // output that will never be sent
	b := r.session(1, 1)
	if !a.c.Closing() || !a.c.Aborting() || a.c.Take(&Batch{}) || r.Stats().Aborted != 1 {
		t.Errorf("closing %v, aborting %v, %+v", a.c.Closing(), a.c.Aborting(), r.Stats())
	}
	if d := r.Dirty(); len(d) < 1 || d[0] != a.c {
		t.Error("the old connection is not the first to be dealt with")
	}
	a.c.Gone() // what the shell does then does not touch the new session
	if r.Sessions(0) != 1 || b.c.Closing() {
		t.Error("the new session is gone")
	}
}

func TestAConnectionThatFailsInItsLoginEndsNothing(t *testing.T) {
	r := newRig(t, nil)
	a := r.session(1, 1)
	b := r.dial(1)
	b.leg(1, 1, false, b.hello())
	b.c.Gone()
	a.good(a.readCmd(0, 1))
	if r.Stats().Reinstated != 0 {
		t.Error("reinstated by half a login")
	}
}

func TestALoginWithATSIHAddsNoConnection(t *testing.T) {
	r := newRig(t, nil)
	a := r.session(1, 1)
	for tsih, want := range map[uint16][2]byte{a.inner().sess.tsih: statusTooMany, 999: statusNoSession} {
		c := r.dial(1)
		text := c.hello().Append(nil)
		p := pdu.LoginRequest{Transit: true, CSG: 1, NSG: 3, ISID: [6]byte{0x80, 0, 0, 0, 0, 1}, TSIH: tsih, CmdSN: 1, DataLen: len(text)}
		c.write(c.pdu(p.Put, text))
		h, _ := c.read()
		var l pdu.LoginResponse
		_ = l.Decode(h)
		if [2]byte{l.StatusClass, l.StatusDetail} != want {
			t.Errorf("TSIH %d: %+v", tsih, l)
		}
	}
	a.good(a.readCmd(0, 1))
}

func TestAbortEndsAHeldCommandForGood(t *testing.T) {
	for _, function := range []uint8{pdu.TMFAbortTask, pdu.TMFAbortTaskSet, pdu.TMFLUNReset, pdu.TMFClearTaskSet, pdu.TMFTargetWarmReset} {
		r := newRig(t, nil)
		c := r.session(1, 1)
		h, _ := r.Hold(Match{Kind: Writes}, true, nil)
		itt := c.writeCmd(0, block(1, 1))
		if got := c.tmf(function, itt); got != pdu.TMFComplete {
			t.Errorf("function %d: response %d", function, got)
		}
		h.Release()
		c.quiet()
		if r.first(0) != 0 || r.Buffers.Held() != 0 {
			t.Errorf("function %d: the write was executed", function)
		}
		if function == pdu.TMFAbortTask && c.tmf(function, itt) != pdu.TMFNoTask {
			t.Error("the task is still there")
		}
	}
}

func TestALUNResetReachesTheOthersTasksAndTellsThem(t *testing.T) {
	r := newRig(t, nil)
	a, b := r.session(1, 1), r.session(2, 2)
	h, _ := r.Hold(Match{Kind: Writes, Count: 1}, false, nil)
	a.writeCmd(0, block(1, 1))
	if got := b.tmf(pdu.TMFLUNReset, pdu.NoTag); got != pdu.TMFComplete || h.Len() != 0 {
		t.Errorf("response %d, %d held", got, h.Len())
	}
	for _, c := range []*client{a, b} {
		c.fails(c.readCmd(0, 1), scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x29, ASCQ: 3})
		c.good(c.readCmd(0, 1))
	}
}

func TestAResetWhileDataArrivesEndsThatWrite(t *testing.T) {
	r := newRig(t, nil)
	a, b := r.session(1, 1), r.session(2, 2)
	itt := a.command(pdu.SCSICommand{Final: true, Write: true, EDTL: 100 * 512}, func(b []byte) int { return scsi.PutWrite16(b, 0, 100, 0) }, nil)
	p := a.r2t()
	out := pdu.DataOut{Final: true, ITT: itt, TTT: p.TTT, DataLen: int(p.Length)}
	wire := a.pdu(out.Put, block(1, 100))
	a.write(wire[:10000]) // half of a segment that is received in place
	b.tmf(pdu.TMFLUNReset, pdu.NoTag)
	b.fails(b.readCmd(0, 1), scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x29, ASCQ: 3})
	// Another write takes a buffer of the same size while the old one still lands.
	itt = b.command(pdu.SCSICommand{Final: true, Write: true, EDTL: 100 * 512}, func(b []byte) int { return scsi.PutWrite16(b, 100, 100, 0) }, nil)
	q := b.r2t()
	b.dataOut(itt, q.TTT, 0, 0, false, block(2, 50))
	a.write(wire[10000:])
	b.dataOut(itt, q.TTT, 1, 50*512, true, block(2, 50))
	b.good(itt)
	a.quiet()
	for lba := range uint64(100) {
		if r.first(100+lba) != 2 {
			t.Fatalf("block %d of the other write is %d", lba, r.first(100+lba))
		}
	}
	if r.first(0) != 0 || r.Buffers.Held() != 0 || a.c.Closing() {
		t.Errorf("block %d, %d bytes out, closing %v", r.first(0), r.Buffers.Held(), a.c.Closing())
	}
	a.write(wire[:60]) // and one that breaks off in the middle leaks nothing
	a.c.Gone()
	if r.Buffers.Held() != 0 {
		t.Error(r.Buffers.Held())
	}
}

func TestDelayedCommandsWaitForTheirTime(t *testing.T) {
	r := newRig(t, nil)
	c, other := r.session(1, 1), r.session(2, 2)
	if err := r.Delay(Match{Kind: Writes, First: 5, Last: 6, Portal: 1, Count: 1}, time.Second); err != nil {
		t.Fatal(err)
	}
	other.good(other.writeCmd(5, block(1, 1)))
	c.good(c.writeCmd(4, block(1, 1))) // another block
	slow := c.writeCmd(4, block(2, 2)) // touches block 5
	c.quiet()
	if at, ok := r.Next(); !ok || at != epoch.Add(time.Second) {
		t.Error(at, ok)
	}
	r.Tick(epoch.Add(time.Second - 1))
	c.quiet()
	r.Tick(epoch.Add(time.Second))
	c.good(slow)
	c.good(c.writeCmd(5, block(3, 1))) // the count is used up
}

func TestADroppedAnswerLeavesTheWriteDone(t *testing.T) {
	r := newRig(t, nil)
	c := r.session(1, 1)
	_ = r.DropAnswer(Match{Kind: Writes, Count: 1})
	c.writeCmd(0, block(7, 1))
	c.quiet()
	if r.first(0) != 7 {
		t.Error("not written")
	}
	c.good(c.writeCmd(0, block(8, 1)))
}

func TestWrongAnswersComeAsOftenAsAsked(t *testing.T) {
	r := newRig(t, nil)
	c := r.session(1, 1)
	sense := scsi.Sense{Key: scsi.KeyMedium, ASC: 0x11}
	_ = r.Answer(Match{Kind: Reads, Count: 2}, scsi.StatusCheckCondition, sense)
	_ = r.Answer(Match{Count: 1}, scsi.StatusBusy, scsi.Sense{})
	c.fails(c.readCmd(0, 1), sense)
	c.fails(c.readCmd(0, 1), sense)
	if _, a := c.result(c.readCmd(0, 1)); a.Status != scsi.StatusBusy {
		t.Errorf("%+v", a)
	}
	c.good(c.readCmd(0, 1))
}

func TestALUAStatesRefuseIOAndAreTold(t *testing.T) {
	r := newRig(t, nil)
	n, err := r.AddPortal(PortalConfig{Group: 2})
	if err != nil {
		t.Fatal(err)
	}
	c, other := r.session(n, 1), r.session(1, 2)
	for state, want := range map[scsi.AccessState]scsi.Sense{scsi.Standby: senseStandby, scsi.Unavailable: senseUnavailable,
		scsi.Transitioning: senseTransition, scsi.Offline: senseOffline} {
		r.SetALUA(2, state)
		changed := scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x2A, ASCQ: 6}
		c.fails(c.readCmd(0, 1), changed)
		c.fails(c.readCmd(0, 1), want)
		other.fails(other.readCmd(0, 1), changed)
		other.good(other.readCmd(0, 1))
		data, _ := c.ask(512, func(b []byte) int { return scsi.PutReportTPG(b, 512, true) })
		g, err := scsi.ParseReportTPG(data)
		if err != nil || g.Find(2) == nil || g.Find(2).State != state || g.Find(1).State != scsi.Optimized || len(g.Find(1).Ports) != 2 {
			t.Errorf("%+v %v", g, err)
		}
	}
}

// profile identifies the unit as an initiator would.
func (c *client) profile() *scsi.Profile {
	c.t.Helper()
	vpd := func(page byte) []byte {
		data, _ := c.ask(255, func(b []byte) int { return scsi.PutInquiryVPD(b, page, 255) })
		return data
	}
	var p scsi.Profile
	var err error
	note := func(e error) {
		if err == nil {
			err = e
		}
	}
	data, _ := c.ask(255, func(b []byte) int { return scsi.PutInquiry(b, 255) })
	p.Inquiry, err = scsi.ParseInquiry(data)
	var e error
	p.Serial, e = scsi.ParseSerial(vpd(scsi.PageSerial))
	note(e)
	ds, e := scsi.ParseDeviceID(nil, vpd(scsi.PageDeviceID))
	note(e)
	p.SetDeviceID(ds)
	p.BlockLimits, e = scsi.ParseBlockLimits(vpd(scsi.PageBlockLimits))
	note(e)
	p.Provisioning, e = scsi.ParseProvisioning(vpd(scsi.PageProvisioning))
	note(e)
	data, _ = c.ask(32, func(b []byte) int { return scsi.PutReadCapacity16(b, 32) })
	p.Capacity, e = scsi.ParseCapacity16(data)
	note(e)
	data, _ = c.ask(64, func(b []byte) int { return scsi.PutModeSense6(b, scsi.ModeCaching, 64) })
	p.Caching, e = scsi.ParseCaching(data, false)
	note(e)
	if err != nil {
		c.t.Fatal(err)
	}
	return &p
}

func TestAUnitIsTheSameAtEveryPortalUntilItIsSwapped(t *testing.T) {
	r := newRig(t, nil)
	a, b := r.session(1, 1).profile(), r.session(2, 2).profile()
	if err := a.SameVolume(b); err != nil || a.Identity().Weak() || a.RelativePort != 1 || b.RelativePort != 2 || a.Group != 1 {
		t.Errorf("%v, %+v", err, a.Identity())
	}
	if l := a.Limits(); l.Size != 1<<20 || !l.WriteCache || !l.FUA || l.MaxTransfer != serve.MaxTransfer || l.MaxZero != maxZero ||
		l.MaxUnmap != maxUnmapBlocks*512 || !l.ZeroUnmaps || a.Check() != nil {
		t.Errorf("%+v", l)
	}
	for name, d := range map[string]Device{
		"NAA":        {Identity: scsi.Identity{NAA: "60000000000000000000000000000099", Serial: a.Serial}},
		"serial":     {Identity: scsi.Identity{NAA: a.Identity().NAA, Serial: "other"}},
		"block size": {BlockSize: 4096},
	} {
		if err := r.SetDevice(2, 0, d); err != nil {
			t.Fatal(err)
		}
		if err := a.SameVolume(r.session(2, 3).profile()); err == nil {
			t.Errorf("%s: not told apart", name)
		}
		if err := a.SameVolume(r.session(1, 4).profile()); err != nil {
			t.Errorf("%s: portal 1 changed too: %v", name, err)
		}
	}
	if err := r.SetDevice(2, 0, Device{Size: 512 * 100}); err != nil {
		t.Fatal(err)
	}
	if got := r.session(2, 5).profile().Size(); got != 51200 {
		t.Error(got)
	}
	if err := r.SetDevice(2, 0, Device{Size: 2 << 20}); err == nil {
		t.Error("a size beyond the store was taken")
	}
}

func TestMissingUnitsAreReportedAsSuch(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.LUNs = []LUN{{Number: 20, Store: NewRAM(1 << 20)}, {Number: 300, Store: NewRAM(1 << 20)}}
	})
	c := r.session(1, 1)
	c.fails(c.readCmd(0, 1), scsi.SenseNoLUN)
	data, _ := c.ask(255, func(b []byte) int { return scsi.PutInquiry(b, 255) })
	if i, err := scsi.ParseInquiry(data); err != nil || i.Present() {
		t.Errorf("%+v %v", i, err)
	}
	data, _ = c.ask(512, func(b []byte) int { return scsi.PutReportLUNs(b, 512) })
	if l, _, err := scsi.ParseReportLUNs(nil, data); err != nil || len(l) != 2 || l[0] != 20<<48 || l[1] != 0x412c<<48 {
		t.Errorf("%v %v", l, err)
	}
	lun300 := uint64(0x412c) << 48
	c.good(c.command(pdu.SCSICommand{Final: true, LUN: lun300}, scsi.PutTestUnitReady, nil))
}

func TestPowerOnIsToldOncePerSession(t *testing.T) {
	r := newRig(t, func(c *Config) { c.PowerOn = true })
	for i := range byte(2) {
		c := r.session(1, i)
		c.good(c.command(pdu.SCSICommand{Final: true, Read: true, EDTL: 96}, func(b []byte) int { return scsi.PutInquiry(b, 96) }, nil))
		c.fails(c.readCmd(0, 1), scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x29})
		c.good(c.readCmd(0, 1))
	}
	c := r.session(1, 9)
	c.fails(c.readCmd(0, 1), scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x29})
	lost := scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x3F, ASCQ: 0x0E}
	r.Attention(1, 0, lost)
	c.fails(c.readCmd(0, 1), lost)
}
