package target

import (
	"slices"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// out sends PERSISTENT RESERVE OUT and returns its status.
func (c *client) out(action byte, kind scsi.ReserveType, key, sakey uint64) byte {
	c.t.Helper()
	p := make([]byte, scsi.ReserveParamLen)
	scsi.PutReserveParam(p, key, sakey, false)
	_, r := c.result(c.command(pdu.SCSICommand{Final: true, Write: true, EDTL: scsi.ReserveParamLen},
		func(b []byte) int { return scsi.PutReserveOut(b, action, kind) }, p))
	return r.Status
}

func (c *client) mustOut(action byte, kind scsi.ReserveType, key, sakey uint64) {
	c.t.Helper()
	if st := c.out(action, kind, key, sakey); st != scsi.StatusGood {
		c.t.Fatalf("action %d: status %02x", action, st)
	}
}

func (c *client) keys() []uint64 {
	c.t.Helper()
	data, _ := c.ask(512, func(b []byte) int { return scsi.PutReserveIn(b, scsi.ActionReadKeys, 512) })
	_, keys, err := scsi.ParseKeys(nil, data)
	if err != nil {
		c.t.Fatal(err)
	}
	return keys
}

func (c *client) reservation() scsi.Reservation {
	c.t.Helper()
	data, _ := c.ask(512, func(b []byte) int { return scsi.PutReserveIn(b, scsi.ActionReadReservation, 512) })
	r, err := scsi.ParseReservation(data)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Generation = 0
	return r
}

// status runs a command that moves no data to the client, and its status.
func (c *client) status(itt uint32) byte {
	c.t.Helper()
	_, r := c.result(itt)
	return r.Status
}

func TestReservationsShutOutWhomTheirTypeSays(t *testing.T) {
	const conflict = scsi.StatusReservationConflict
	for kind, want := range map[scsi.ReserveType]struct{ regRead, regWrite, read, write byte }{
		scsi.WriteExclusive:                {0, conflict, 0, conflict},
		scsi.ExclusiveAccess:               {conflict, conflict, conflict, conflict},
		scsi.WriteExclusiveRegistrantsOnly: {0, 0, 0, conflict},
		scsi.ExclusiveRegistrantsOnly:      {0, 0, conflict, conflict},
		scsi.WriteExclusiveAllRegistrants:  {0, 0, 0, conflict},
		scsi.ExclusiveAllRegistrants:       {0, 0, conflict, conflict},
	} {
		r := newRig(t, nil)
		a, b, c := r.session(1, 1), r.session(2, 2), r.session(1, 3)
		a.mustOut(scsi.ActionRegister, 0, 0, 11)
		b.mustOut(scsi.ActionRegister, 0, 0, 22)
		a.mustOut(scsi.ActionReserve, kind, 11, 0)
		a.good(a.writeCmd(0, block(1, 1)))
		got := struct{ regRead, regWrite, read, write byte }{b.status(b.readCmd(0, 1)), b.status(b.writeCmd(0, block(1, 1))),
			c.status(c.readCmd(0, 1)), c.status(c.writeCmd(0, block(1, 1)))}
		if got != want {
			t.Errorf("type %d: %+v, want %+v", kind, got, want)
		}
		c.good(c.command(pdu.SCSICommand{Final: true}, scsi.PutTestUnitReady, nil))
		a.mustOut(scsi.ActionRelease, kind, 11, 0)
		if c.reservation().Held {
			t.Errorf("type %d: still held", kind)
		}
	}
}

func TestPreemptAndAbortFencesALateWrite(t *testing.T) {
	r := newRig(t, nil)
	a, b := r.session(1, 1), r.session(2, 2)
	a.mustOut(scsi.ActionRegister, 0, 0, 11)
	b.mustOut(scsi.ActionRegister, 0, 0, 22)
	a.mustOut(scsi.ActionReserve, scsi.WriteExclusiveRegistrantsOnly, 11, 0)
	h, _ := r.Hold(Match{Kind: Writes, Count: 1}, true, nil)
	a.writeCmd(0, block(1, 1))
	a.c.Gone()
	b.mustOut(scsi.ActionPreemptAbort, scsi.WriteExclusiveRegistrantsOnly, 22, 11)
	if h.Len() != 0 {
		t.Error("the write is still inside the target")
	}
	h.Release()
	if r.first(0) != 0 || r.Stats().LateWrites != 0 {
		t.Errorf("block is %d, %+v", r.first(0), r.Stats())
	}
	if got := b.reservation(); got != (scsi.Reservation{Held: true, Key: 22, Type: scsi.WriteExclusiveRegistrantsOnly}) {
		t.Errorf("%+v", got)
	}
	// Coming back, the old path is told, and shut out.
	a = r.session(1, 1)
	if st := a.status(a.writeCmd(0, block(1, 1))); st != scsi.StatusReservationConflict {
		t.Errorf("status %02x", st)
	}
}

func TestAPreemptedWriteThatWasHeldIsRefusedAtRelease(t *testing.T) {
	r := newRig(t, nil)
	a, b := r.session(1, 1), r.session(2, 2)
	a.mustOut(scsi.ActionRegister, 0, 0, 11)
	b.mustOut(scsi.ActionRegister, 0, 0, 22)
	b.mustOut(scsi.ActionReserve, scsi.WriteExclusiveRegistrantsOnly, 22, 0)
	h, _ := r.Hold(Match{Kind: Writes, Count: 1}, true, nil)
	itt := a.writeCmd(0, block(1, 1))
	b.mustOut(scsi.ActionPreempt, scsi.WriteExclusiveRegistrantsOnly, 22, 11) // without ABORT
	h.Release()
	if st := a.status(itt); st != scsi.StatusReservationConflict || r.first(0) != 0 {
		t.Errorf("status %02x, block %d", st, r.first(0))
	}
	a.fails(a.readCmd(0, 1), senseRegistryCut)
}

func TestRegistrationsOutliveTheirSession(t *testing.T) {
	r := newRig(t, nil)
	a := r.session(1, 1)
	a.mustOut(scsi.ActionRegister, 0, 0, 11)
	a.mustOut(scsi.ActionReserve, scsi.ExclusiveAccess, 11, 0)
	a.c.Gone()
	b := r.session(1, 2)
	if st := b.status(b.readCmd(0, 1)); st != scsi.StatusReservationConflict {
		t.Errorf("another nexus: status %02x", st)
	}
	a = r.session(1, 1)
	a.good(a.readCmd(0, 1))
	if k := a.keys(); !slices.Equal(k, []uint64{11}) {
		t.Error(k)
	}
}

func TestWrongKeysAreAConflict(t *testing.T) {
	r := newRig(t, nil)
	a := r.session(1, 1)
	if st := a.out(scsi.ActionReserve, scsi.WriteExclusive, 0, 0); st != scsi.StatusReservationConflict {
		t.Errorf("reserve by a stranger: %02x", st)
	}
	a.mustOut(scsi.ActionRegister, 0, 0, 11)
	for _, action := range []byte{scsi.ActionRegister, scsi.ActionReserve, scsi.ActionRelease, scsi.ActionClear, scsi.ActionPreempt} {
		if st := a.out(action, scsi.WriteExclusive, 12, 13); st != scsi.StatusReservationConflict {
			t.Errorf("action %d with a wrong key: %02x", action, st)
		}
	}
	if st := a.out(scsi.ActionPreempt, scsi.WriteExclusive, 11, 99); st != scsi.StatusReservationConflict {
		t.Errorf("preempt of nobody: %02x", st)
	}
	a.mustOut(scsi.ActionRegisterAndIgnore, 0, 999, 14)
	a.mustOut(scsi.ActionClear, 0, 14, 0)
	if k := a.keys(); len(k) != 0 {
		t.Error(k)
	}
}

func TestUnregisteringTheHolderReleases(t *testing.T) {
	r := newRig(t, nil)
	a, b := r.session(1, 1), r.session(2, 2)
	a.mustOut(scsi.ActionRegister, 0, 0, 11)
	b.mustOut(scsi.ActionRegister, 0, 0, 22)
	a.mustOut(scsi.ActionReserve, scsi.ExclusiveRegistrantsOnly, 11, 0)
	a.mustOut(scsi.ActionRegister, 0, 11, 0)
	b.fails(b.readCmd(0, 1), senseReleased)
	if b.reservation().Held || !slices.Equal(b.keys(), []uint64{22}) {
		t.Error(b.reservation(), b.keys())
	}
}

func TestOthersAreToldWhatBecameOfTheReservation(t *testing.T) {
	for name, k := range map[string]struct {
		do   func(a *client)
		want scsi.Sense
	}{
		"release":          {func(a *client) { a.mustOut(scsi.ActionRelease, scsi.WriteExclusiveRegistrantsOnly, 11, 0) }, senseReleased},
		"clear":            {func(a *client) { a.mustOut(scsi.ActionClear, 0, 11, 0) }, sensePreempted},
		"preempt":          {func(a *client) { a.mustOut(scsi.ActionPreempt, scsi.WriteExclusiveRegistrantsOnly, 11, 22) }, senseRegistryCut},
		"preempt, abort":   {func(a *client) { a.mustOut(scsi.ActionPreemptAbort, scsi.WriteExclusiveRegistrantsOnly, 11, 22) }, senseRegistryCut},
		"holder goes away": {func(a *client) { a.mustOut(scsi.ActionRegister, 0, 11, 0) }, senseReleased},
	} {
		r := newRig(t, nil)
		a, b, c := r.session(1, 1), r.session(2, 2), r.session(1, 3)
		a.mustOut(scsi.ActionRegister, 0, 0, 11)
		b.mustOut(scsi.ActionRegister, 0, 0, 22)
		a.mustOut(scsi.ActionReserve, scsi.WriteExclusiveRegistrantsOnly, 11, 0)
		k.do(a)
		t.Log(name)
		b.fails(b.readCmd(0, 1), k.want)
		b.good(b.readCmd(0, 1))
		c.good(c.readCmd(0, 1)) // who is not registered is not told
	}
}

func TestATypeThatChangesReleasesTheOtherRegistrants(t *testing.T) {
	r := newRig(t, nil)
	a, b, c := r.session(1, 1), r.session(2, 2), r.session(1, 3)
	a.mustOut(scsi.ActionRegister, 0, 0, 11)
	b.mustOut(scsi.ActionRegister, 0, 0, 22)
	c.mustOut(scsi.ActionRegister, 0, 0, 33)
	a.mustOut(scsi.ActionReserve, scsi.WriteExclusiveRegistrantsOnly, 11, 0)
	b.mustOut(scsi.ActionPreempt, scsi.ExclusiveRegistrantsOnly, 22, 11)
	a.fails(a.send(scsi.PutTestUnitReady, nil), senseRegistryCut)
	c.fails(c.send(scsi.PutTestUnitReady, nil), senseReleased)
	if got := c.reservation(); got != (scsi.Reservation{Held: true, Key: 22, Type: scsi.ExclusiveRegistrantsOnly}) {
		t.Errorf("%+v", got)
	}
}

func TestPersistenceThroughPowerLossIsRefused(t *testing.T) {
	r := newRig(t, nil)
	c := r.session(1, 1)
	p := make([]byte, scsi.ReserveParamLen)
	scsi.PutReserveParam(p, 0, 11, true)
	c.fails(c.send(func(b []byte) int { return scsi.PutReserveOut(b, scsi.ActionRegister, 0) }, p), scsi.SenseInvalidParam)
	if len(c.keys()) != 0 {
		t.Error("registered all the same")
	}
	caps, _ := c.ask(8, func(b []byte) int { return scsi.PutReserveIn(b, scsi.ActionReportCaps, 8) })
	if caps[2]&1 != 0 {
		t.Errorf("it says that it can: % x", caps)
	}
}

func TestCommandsThatChangeTheUnitConflict(t *testing.T) {
	r := newRig(t, nil)
	a, b := r.session(1, 1), r.session(2, 2)
	a.mustOut(scsi.ActionRegister, 0, 0, 11)
	a.mustOut(scsi.ActionReserve, scsi.WriteExclusive, 11, 0)
	conflict := func(itt uint32) bool { return b.status(itt) == scsi.StatusReservationConflict }
	if !conflict(b.selects()) || !conflict(b.send(cdb(scsi.OpCompareAndWrite, 0, 0, 0), nil)) ||
		!conflict(b.send(cdb(scsi.OpWriteVerify10, 0, 0, 1), block(1, 1))) || conflict(b.send(cdb(scsi.OpVerify10, 0, 0, 1), nil)) {
		t.Error("WRITE EXCLUSIVE lets the wrong ones through")
	}
	a.mustOut(scsi.ActionRelease, scsi.WriteExclusive, 11, 0)
	a.mustOut(scsi.ActionReserve, scsi.ExclusiveAccess, 11, 0)
	if !conflict(b.send(cdb(scsi.OpVerify10, 0, 0, 1), nil)) || conflict(b.send(scsi.PutTestUnitReady, nil)) {
		t.Error("EXCLUSIVE ACCESS lets the wrong ones through")
	}
}
