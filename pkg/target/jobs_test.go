package target

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// plain is a store whose memory the machine does not know, so that it has jobs.
type plain struct{ ram *RAM }

func (p plain) Size() uint64                       { return p.ram.Size() }
func (p plain) ReadAt(b []byte, off uint64) error  { return p.ram.ReadAt(b, off) }
func (p plain) WriteAt(b []byte, off uint64) error { return p.ram.WriteAt(b, off) }
func (p plain) Zero(off, n uint64) error           { return p.ram.Zero(off, n) }
func (p plain) Flush() error                       { return nil }
func (p plain) Close() error                       { return nil }

// bench is a rig whose jobs are run by the test, when and in which order it
// likes.
type bench struct {
	*rig
	jobs []benchJob
}

type benchJob struct {
	job  func() error
	done func(error)
}

func newBench(t *testing.T, change func(*Config)) *bench {
	t.Helper()
	ram := NewRAM(1 << 20)
	b := &bench{rig: newRig(t, func(c *Config) {
		c.LUNs[0].Store = plain{ram}
		if change != nil {
			change(c)
		}
	})}
	b.ram = ram
	b.Run = func(job func() error, done func(error)) { b.jobs = append(b.jobs, benchJob{job, done}) }
	return b
}

// work does and ends the job at i.
func (b *bench) work(i int) {
	b.t.Helper()
	if i >= len(b.jobs) {
		b.t.Fatalf("no job %d of %d", i, len(b.jobs))
	}
	j := b.jobs[i]
	b.jobs = slices.Delete(b.jobs, i, i+1)
	j.done(j.job())
}

func (b *bench) has(n int) {
	b.t.Helper()
	if len(b.jobs) != n {
		b.t.Fatalf("%d jobs, want %d", len(b.jobs), n)
	}
}

// sendTMF sends a task management function, which may be answered later.
func (c *client) sendTMF(function uint8, lun uint64, ref uint32) {
	c.itt++
	p := pdu.TMFRequest{Immediate: true, Function: function, LUN: lun, ITT: c.itt, RefTag: ref, CmdSN: c.cmdSN}
	c.write(c.pdu(p.Put, nil))
}

func (c *client) tmfDone(want uint8) {
	c.t.Helper()
	h, _ := c.read()
	var r pdu.TMFResponse
	if op, _ := pdu.Op(h); op != pdu.OpTMFResponse {
		c.t.Fatalf("%v, want a TMF response", op)
	}
	if err := r.Decode(h); err != nil || r.Response != want {
		c.t.Fatalf("response %d %v, want %d", r.Response, err, want)
	}
}

func TestAnAbortIsAnsweredWhenTheStoresJobIsOver(t *testing.T) {
	for name, f := range map[string]uint8{"task": pdu.TMFAbortTask, "task set": pdu.TMFAbortTaskSet,
		"clear": pdu.TMFClearTaskSet, "LUN reset": pdu.TMFLUNReset, "warm reset": pdu.TMFTargetWarmReset} {
		b := newBench(t, nil)
		c := b.session(1, 1)
		itt := c.writeCmd(0, block(7, 1))
		b.has(1)
		c.sendTMF(f, 0, itt)
		c.quiet() // the write is under way: nobody may be told that it is over
		b.work(0)
		c.tmfDone(pdu.TMFComplete)
		c.quiet() // and its own answer is not sent
		if b.first(0) != 7 || b.Buffers.Held() != 0 {
			t.Errorf("%s: block %d, %d bytes of buffers", name, b.first(0), b.Buffers.Held())
		}
	}
}

func TestAnAbortAskedTwiceWaitsTwice(t *testing.T) {
	b := newBench(t, nil)
	c := b.session(1, 1)
	itt := c.writeCmd(0, block(7, 1))
	c.sendTMF(pdu.TMFAbortTask, 0, itt)
	c.sendTMF(pdu.TMFAbortTask, 0, itt)
	c.quiet()
	b.work(0)
	c.tmfDone(pdu.TMFComplete)
	c.tmfDone(pdu.TMFComplete)
	c.sendTMF(pdu.TMFAbortTask, 0, itt)
	c.tmfDone(pdu.TMFNoTask)
}

func TestAbortsThatWaitAreBounded(t *testing.T) {
	b := newBench(t, nil)
	c := b.session(1, 1)
	itt := c.writeCmd(0, block(7, 1))
	for range maxWaitingTMF {
		c.sendTMF(pdu.TMFAbortTask, 0, itt)
	}
	c.quiet()
	c.sendTMF(pdu.TMFAbortTask, 0, itt)
	c.tmfDone(pdu.TMFRejected)
	b.work(0)
	for range maxWaitingTMF {
		c.tmfDone(pdu.TMFComplete)
	}
}

func TestAnAbortedJobThatHasNotBegunNeverDoes(t *testing.T) {
	b := newBench(t, nil)
	c := b.session(1, 1)
	for i := range uint64(serve.MaxUnitJobs) {
		c.writeCmd(i, block(1, 1))
	}
	itt := c.writeCmd(100, block(9, 1))
	b.has(serve.MaxUnitJobs)
	c.sendTMF(pdu.TMFAbortTask, 0, itt)
	c.tmfDone(pdu.TMFComplete) // at once
	for range serve.MaxUnitJobs {
		b.work(0)
	}
	if b.has(0); b.first(100) != 0 || b.first(31) != 1 {
		t.Errorf("blocks %d %d", b.first(100), b.first(31))
	}
}

func TestALoginThatReinstatesWaitsForTheOldSessionsJobs(t *testing.T) {
	for name, lose := range map[string]bool{"the old connection is there": false, "it was lost before": true} {
		b := newBench(t, nil)
		old := b.session(1, 1)
		old.writeCmd(0, block(7, 1))
		if lose {
			old.c.Gone()
		}
		again := b.dial(2) // at the sibling portal: the same portal group
		p := pdu.LoginRequest{Transit: true, CSG: 1, NSG: 3, ISID: [6]byte{0x80, 5: 1}, CmdSN: 100}
		text := again.hello().Append(nil)
		p.DataLen = len(text)
		again.write(again.pdu(p.Put, text))
		again.quiet() // the answer would be proof that the old write is over
		if !lose && !old.c.Aborting() {
			t.Errorf("%s: it stays open", name)
		}
		b.work(0)
		h, _ := again.read()
		var r pdu.LoginResponse
		if err := r.Decode(h); err != nil || r.StatusClass != 0 || r.TSIH == 0 {
			t.Fatalf("%s: %+v %v", name, r, err)
		}
		again.layout = pdu.Layout{}
		itt := again.readCmd(0, 1)
		b.work(0)
		if got := again.good(itt); got[0] != 7 {
			t.Errorf("%s: block %d", name, got[0])
		}
	}
}

func TestOfTwoLoginsThatWaitTheLastHasTheSession(t *testing.T) {
	b := newBench(t, nil)
	b.session(1, 1).writeCmd(0, block(7, 1))
	var c [2]*client
	for i := range c {
		c[i] = b.dial(1)
		p := pdu.LoginRequest{Transit: true, CSG: 1, NSG: 3, ISID: [6]byte{0x80, 5: 1}, CmdSN: 100}
		text := c[i].hello().Append(nil)
		p.DataLen = len(text)
		c[i].write(c[i].pdu(p.Put, text))
		c[i].quiet()
	}
	b.work(0)
	if b.Sessions(0) != 1 || !c[0].c.Closing() || c[1].c.Closing() {
		t.Errorf("%d sessions, closing %v %v", b.Sessions(0), c[0].c.Closing(), c[1].c.Closing())
	}
}

func TestALoginThatWaitsTakesNothingElse(t *testing.T) {
	b := newBench(t, nil)
	b.session(1, 1).writeCmd(0, block(7, 1))
	c := b.dial(1)
	p := pdu.LoginRequest{Transit: true, CSG: 1, NSG: 3, ISID: [6]byte{0x80, 5: 1}, CmdSN: 100}
	text := c.hello().Append(nil)
	p.DataLen = len(text)
	c.write(c.pdu(p.Put, text))
	c.readCmd(0, 1)
	if !c.c.Closing() {
		t.Error("a command before the login's answer was taken")
	}
	c.c.Gone()
	b.work(0) // whoever waited is gone
	if b.Sessions(0) != 0 {
		t.Error("a session without a connection")
	}
}

func TestALogoutIsAnsweredWhenNoJobRuns(t *testing.T) {
	b := newBench(t, nil)
	c := b.session(1, 1)
	c.writeCmd(0, block(7, 1))
	p := pdu.LogoutRequest{Immediate: true, Reason: pdu.LogoutSession, ITT: 99, CmdSN: c.cmdSN}
	c.write(c.pdu(p.Put, nil))
	c.quiet()
	b.work(0)
	h, _ := c.read()
	var r pdu.LogoutResponse
	if err := r.Decode(h); err != nil || r.Response != pdu.LogoutDone || !c.c.Closing() {
		t.Errorf("%+v %v", r, err)
	}
}

func TestPreemptAndAbortIsAnsweredWhenThePreemptedJobsAreOver(t *testing.T) {
	for name, lose := range map[string]bool{"the other is there": false, "its connection is lost": true} {
		b := newBench(t, nil)
		a, c := b.session(1, 1), b.session(2, 2)
		a.mustOut(scsi.ActionRegister, 0, 0, 11)
		c.mustOut(scsi.ActionRegister, 0, 0, 22)
		a.mustOut(scsi.ActionReserve, scsi.WriteExclusiveRegistrantsOnly, 11, 0)
		a.writeCmd(0, block(7, 1))
		if lose {
			a.c.Gone()
		}
		p := make([]byte, scsi.ReserveParamLen)
		scsi.PutReserveParam(p, 22, 11, false)
		itt := c.command(pdu.SCSICommand{Final: true, Write: true, EDTL: scsi.ReserveParamLen},
			func(b []byte) int {
				return scsi.PutReserveOut(b, scsi.ActionPreemptAbort, scsi.WriteExclusiveRegistrantsOnly)
			}, p)
		c.quiet()
		b.work(0)
		if c.good(itt); b.first(0) != 7 {
			t.Errorf("%s: block %d", name, b.first(0))
		}
	}
}

func TestAResetEndsAPreemptThatWaits(t *testing.T) {
	b := newBench(t, nil)
	a, c := b.session(1, 1), b.session(2, 2)
	a.mustOut(scsi.ActionRegister, 0, 0, 11)
	c.mustOut(scsi.ActionRegister, 0, 0, 22)
	a.writeCmd(0, block(7, 1))
	p := make([]byte, scsi.ReserveParamLen)
	scsi.PutReserveParam(p, 22, 11, false)
	c.command(pdu.SCSICommand{Final: true, Write: true, EDTL: scsi.ReserveParamLen},
		func(b []byte) int { return scsi.PutReserveOut(b, scsi.ActionPreemptAbort, 0) }, p)
	c.sendTMF(pdu.TMFLUNReset, 0, 0)
	b.work(0)
	c.tmfDone(pdu.TMFComplete)
	c.quiet()
}

func TestEveryJobOfABrokenConnectionGivesItsBufferBack(t *testing.T) {
	b := newBench(t, nil)
	c := b.session(1, 1)
	for i := range uint64(20) {
		c.writeCmd(i, block(byte(i), 8))
		c.readCmd(i, 64)
	}
	for range 5 {
		b.work(0)
	}
	c.c.Gone()
	for len(b.jobs) > 0 {
		b.work(0)
	}
	if b.Buffers.Held() != 0 || b.Jobs() != 0 || len(b.sessions) != 0 {
		t.Errorf("%d bytes, %d running, %d sessions", b.Buffers.Held(), b.Jobs(), len(b.sessions))
	}
}

func TestALongReadBesideTheMachineOwnsItsBufferUntilItIsSent(t *testing.T) {
	b := newBench(t, nil)
	want := pattern(300 * 512)
	_ = b.ram.WriteAt(want, 0)
	c := b.session(1, 1)
	itt := c.readCmd(0, 300)
	b.work(0)
	if b.Buffers.Held() == 0 {
		t.Fatal("the buffer is back before its data is out")
	}
	if got := c.good(itt); !bytes.Equal(got, want) || b.Buffers.Held() != 0 {
		t.Errorf("equal %v, %d bytes", bytes.Equal(got, want), b.Buffers.Held())
	}
}

// broken fails everything.
type broken struct{ plain }

func (broken) ReadAt([]byte, uint64) error  { return errors.New("injected") }
func (broken) WriteAt([]byte, uint64) error { return errors.New("injected") }
func (broken) Zero(uint64, uint64) error    { return errors.New("injected") }

func TestErrorsBesideTheMachineAreSenses(t *testing.T) {
	r := newRig(t, func(c *Config) { c.LUNs[0].Store = broken{plain{NewRAM(1 << 20)}} })
	c := r.session(1, 1)
	c.fails(c.readCmd(0, 100), senseReadError)
	c.fails(c.writeCmd(0, block(1, 1)), senseWriteError)
	c.fails(c.command(pdu.SCSICommand{Final: true}, func(b []byte) int { return scsi.PutWriteSame16(b, 0, 1, scsi.NDOB) }, nil), senseWriteError)
	if r.Buffers.Held() != 0 {
		t.Errorf("%d bytes of buffers", r.Buffers.Held())
	}
}
