package iscsi

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/wire"
)

// tmf cuts the single task management request out of what is sent.
func (r *rig) tmf() pdu.TMFRequest {
	r.t.Helper()
	out := r.take()
	var h pdu.TMFRequest
	if len(out) != 1 || h.Decode(out[0].header) != nil {
		r.t.Fatalf("sent %d PDUs, want one task management request", len(out))
	}
	return h
}

func (r *rig) tmfAnswer(itt uint32, code uint8) []byte {
	return r.wire(&pdu.TMFResponse{ITT: itt, Response: code, Window: r.window(true)}, nil)
}

func TestAnOldCommandIsAborted(t *testing.T) {
	r := newRig(t, defaultParams())
	c, young := read(0, 512), read(512, 512)
	r.submit(c)
	r.take()
	r.m.Clock.Tick(590 * wire.TickInterval)
	r.submit(young)
	r.take()
	if r.m.Tasks.TooOld(599, 600, 200) || !r.m.Tasks.TooOld(600, 600, 200) {
		t.Error("the ticker does not see the age")
	}
	if err := r.m.rx.review(600, 600, 200); err != nil {
		t.Fatal(err)
	}
	h := r.tmf()
	if h.Function != pdu.TMFAbortTask || h.RefTag != c.Tag || h.RefCmdSN != 1 || h.LUN != 1<<48 || !h.Immediate || h.CmdSN != 3 {
		t.Fatalf("%+v", h)
	}
	if err := r.m.rx.review(601, 600, 200); err != nil || len(r.take()) != 0 {
		t.Errorf("aborted twice: %v", err)
	}
	r.mustFeed(r.tmfAnswer(h.ITT, pdu.TMFComplete))
	r.mustBe(blk.Aborted, c)
	r.mustFeed(r.good(c.Tag)) // too late: dropped
	r.mustBe(blk.Aborted, c)
}

func TestAnAbortThatFailsEndsTheSession(t *testing.T) {
	for name, code := range map[string]uint8{"no such task": pdu.TMFNoTask, "not supported": pdu.TMFNotSupported, "rejected": pdu.TMFRejected} {
		r := newRig(t, defaultParams())
		c := read(0, 512)
		r.submit(c)
		r.take()
		if err := r.m.rx.review(600, 600, 200); err != nil {
			t.Fatal(err)
		}
		if err := r.feed(r.tmfAnswer(r.tmf().ITT, code)); !errors.Is(err, ErrCommandTimeout) || len(r.sink[0].done) != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := newRig(t, defaultParams())
	r.submit(read(0, 512))
	r.take()
	_ = r.m.rx.review(600, 600, 200)
	r.m.Clock.Tick(600 * wire.TickInterval)
	r.tmf()
	if err := r.m.rx.review(799, 600, 200); err != nil {
		t.Errorf("gave up too early: %v", err)
	}
	if err := r.m.rx.review(800, 600, 200); !errors.Is(err, ErrCommandTimeout) {
		t.Errorf("unanswered: %v", err)
	}
}

func TestAnAnswerThatOvertakesItsAbortCounts(t *testing.T) {
	r := newRig(t, defaultParams())
	c := read(0, 512)
	r.submit(c)
	r.take()
	_ = r.m.rx.review(600, 600, 200)
	h := r.tmf()
	r.mustFeed(r.dataIn(c.Tag, c.Buf, 512))
	r.mustFeed(r.tmfAnswer(h.ITT, pdu.TMFNoTask))
	r.mustBe(blk.Good, c)
}

func TestALUNResetEndsTheTasksOfThatUnitOnly(t *testing.T) {
	r := newRig(t, defaultParams(), 8, 8)
	before, late, other := read(0, 512), read(512, 512), read(0, 512)
	r.submit(before, late)
	if !r.luns[1].Submit(other, 0) {
		t.Fatal("not taken")
	}
	r.take()
	c := r.m.newControl(ctlTMF)
	c.function, c.lun, c.refTag = pdu.TMFLUNReset, 1<<48, pdu.NoTag
	r.m.queue(c)
	h := r.tmf()
	after := read(1024, 512)
	r.submit(after)
	r.take()
	r.mustFeed(r.dataIn(late.Tag, late.Buf, 512)) // arrives before the answer: counts
	r.mustFeed(r.tmfAnswer(h.ITT, pdu.TMFComplete))
	if len(r.sink[0].done) != 2 || r.sink[0].done[0] != late || late.Verdict.Class != blk.Good ||
		r.sink[0].done[1] != before || before.Verdict.Class != blk.Aborted || len(r.sink[1].done) != 0 {
		t.Fatalf("%d and %d done", len(r.sink[0].done), len(r.sink[1].done))
	}
	r.mustFeed(append(r.dataIn(other.Tag, other.Buf, 512), r.dataIn(after.Tag, after.Buf, 512)...))
	if other.Verdict.Class != blk.Good || after.Verdict.Class != blk.Good || len(r.sink[1].done) != 1 {
		t.Error("a task that was not meant has ended")
	}
}

func TestACancelledCommandLeavesNoHoleInCmdSN(t *testing.T) {
	r := newRig(t, defaultParams())
	r.m.maxCmdSN.Store(0)
	var ctl [3]*control
	for i := range ctl {
		ctl[i] = r.m.newControl(ctlExec)
		r.m.queue(ctl[i])
	}
	if len(r.take()) != 0 {
		t.Fatal("sent through a shut window")
	}
	ctl[1].Fate.Store(wire.FateAbandoned)
	r.mustFeed(r.wire(&pdu.NOPIn{ITT: pdu.NoTag, TTT: pdu.NoTag, Window: r.window(false)}, nil))
	out := r.take()
	for i, want := range []*control{ctl[0], ctl[2]} {
		var h pdu.SCSICommand
		if len(out) != 2 || h.Decode(out[i].header) != nil || h.CmdSN != uint32(1+i) || h.ITT != want.Cmd.Tag {
			t.Fatalf("%d PDUs, %d is %+v", len(out), i, h)
		}
	}
	<-ctl[1].Done
}

func TestASinkMaySubmitFromItsCompletion(t *testing.T) {
	r := newRig(t, defaultParams(), 1)
	next := read(512, 512)
	r.sink[0].again = func(c *blk.Command) {
		if c != next && !r.luns[0].Submit(next, 0) {
			t.Error("no room for one more although one has ended")
		}
	}
	c := read(0, 512)
	r.submit(c)
	r.take()
	r.mustFeed(r.dataIn(c.Tag, c.Buf, 512))
	if len(r.take()) != 1 {
		t.Error("not sent")
	}
}

func TestAUnitKeepsToItsShareOfTheWindow(t *testing.T) {
	r := newRig(t, defaultParams(), 3, 3)
	for i := range 4 {
		if r.luns[0].Submit(read(i*512, 512), 0) != (i < 3) {
			t.Errorf("command %d", i)
		}
	}
	if !r.luns[1].Submit(read(0, 512), 0) {
		t.Error("the other unit is starved")
	}
}

func TestLostCommandsComeBackOnceInOrderOfSending(t *testing.T) {
	r := newRig(t, defaultParams(), 8, 8)
	r.m.maxCmdSN.Store(4)
	var cmds []*blk.Command
	for i := range 6 {
		cmds = append(cmds, write(i*512, 512))
	}
	r.submit(cmds[:3]...)
	other := read(0, 512)
	r.luns[1].Submit(other, 0)
	r.submit(cmds[3:5]...) // beyond the window
	r.take()
	r.submit(cmds[5]) // never looked at
	r.mustFeed(r.good(cmds[1].Tag))
	r.m.lose(*r.m.luns.Load(), ErrPathTimeout)
	got := r.sink[0].lost
	want := []*blk.Command{cmds[0], cmds[2], cmds[3], cmds[4], cmds[5]}
	if len(got) != 1 || len(got[0]) != len(want) || !errors.Is(r.sink[0].cause, ErrPathTimeout) {
		t.Fatalf("lost %d times, %v", len(got), r.sink[0].cause)
	}
	for i, c := range got[0] {
		if c != want[i] || c.Sent != (i < 2) || c.Verdict.Class != blk.PathLost {
			t.Errorf("lost %d: sent %v, %v", i, c.Sent, c.Verdict)
		}
	}
	if len(r.sink[1].lost) != 1 || len(r.sink[1].lost[0]) != 1 || r.luns[0].Inflight() != 0 || r.luns[0].Submit(read(0, 512), 0) {
		t.Error("the other unit, or the count, or the gate")
	}
}

func TestABlackHoleIsSeenWithinPathTimeoutAnd200ms(t *testing.T) {
	for _, busyBefore := range []time.Duration{0, 33 * time.Millisecond, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			w := wire.Watchdog{Path: 5 * time.Second}
			tick := time.NewTicker(wire.TickInterval)
			defer tick.Stop()
			var pinged time.Duration
			received := uint64(0)
			for now := range tick.C {
				since := now.Sub(start)
				if since < busyBefore {
					received++
				}
				hole := since - busyBefore // since the last byte
				switch w.Tick(since, received, true) {
				case wire.WatchPing:
					pinged = hole
				case wire.WatchDead:
					if hole < 4900*time.Millisecond || hole > 5200*time.Millisecond {
						t.Errorf("declared dead after %v", hole)
					}
					if pinged < 2400*time.Millisecond || pinged > 2700*time.Millisecond {
						t.Errorf("pinged after %v", pinged)
					}
					return
				case wire.WatchOK:
				}
				if hole > 6*time.Second {
					t.Fatal("never seen")
				}
			}
		})
	}
}

func TestTheWatchdogBarksOnlyWhenSomethingIsOutstanding(t *testing.T) {
	w := wire.Watchdog{Path: 5 * time.Second}
	now := time.Duration(0)
	step := func(received uint64, outstanding bool) wire.Watched {
		now += wire.TickInterval
		return w.Tick(now, received, outstanding)
	}
	for range 1000 {
		if step(0, false) != wire.WatchOK {
			t.Fatal("idle session")
		}
	}
	for i := range uint64(1000) {
		if step(i, true) != wire.WatchOK {
			t.Fatal("bytes come in")
		}
	}
	now += time.Hour // the machine slept
	for range 2 {    // the second has no gap and no byte
		if step(1000, true) != wire.WatchOK {
			t.Fatal("a suspended process is no dead path")
		}
	}
}

func TestAWindowThatStaysShutIsNoticed(t *testing.T) {
	var s stuck
	if s.tick(0, 1<<32|5, time.Second) || s.tick(900*time.Millisecond, 1<<32|6, time.Second) ||
		s.tick(1800*time.Millisecond, 1<<32|6, time.Second) || !s.tick(1900*time.Millisecond, 1<<32|6, time.Second) {
		t.Error("wrong time")
	}
	if s.tick(5*time.Second, 0, time.Second) {
		t.Error("nothing waits")
	}
}

// putAnswer writes the answer to c without allocating.
func (r *rig) putAnswer(b []byte, c *blk.Command) int {
	if c.Op != blk.Read {
		(&pdu.SCSIResponse{ITT: c.Tag, Window: r.window(true)}).Put(b)
		return pdu.HeaderLen
	}
	(&pdu.DataIn{Final: true, HasStatus: true, ITT: c.Tag, TTT: pdu.NoTag, Window: r.window(true), DataLen: len(c.Buf)}).Put(b)
	return pdu.HeaderLen + copy(b[pdu.HeaderLen:], c.Buf)
}

func TestSubmitAndCompleteAllocateNothing(t *testing.T) {
	r := newRig(t, defaultParams())
	cmds := []*blk.Command{read(0, 4096), write(4096, 4096), read(8192, 64<<10), write(1<<20, 64<<10), {Op: blk.Flush}, {Op: blk.Trim, Len: 4096}}
	r.sink[0].done = make([]*blk.Command, 0, 16)
	stream := make([]byte, 256<<10)
	round := func() {
		r.sink[0].done = r.sink[0].done[:0]
		for _, c := range cmds {
			if !r.luns[0].Submit(c, 0) {
				t.Fatal("not taken")
			}
		}
		r.maxC += 10
		for iov := r.m.Gather(); len(iov) > 0; iov = r.m.Gather() {
			n := 0
			for i := range iov {
				n += int(iov[i].Len)
			}
			r.m.Accept(n)
		}
		n := 0
		for _, c := range cmds {
			n += r.putAnswer(stream[n:], c)
		}
		for b := stream[:n]; len(b) > 0; {
			x, y := r.m.In.Space()
			k := copy(x, b)
			k += copy(y, b[k:])
			if err := r.m.In.Fed(k); err != nil {
				t.Fatal(err)
			}
			r.m.EndBatch()
			b = b[k:]
		}
		if len(r.sink[0].done) != len(cmds) {
			t.Fatalf("%d done", len(r.sink[0].done))
		}
	}
	round() // grows what grows once
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations per round of %d commands", n, len(cmds))
	}
}
