package subsystem

import (
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

func (h *host) reserve(r nvme.ReserveCommand, current, other uint64) uint16 {
	h.r.t.Helper()
	return h.io.start(r.Command(1), r.AppendKeys(nil, current, other))
}

func (h *host) register(key uint64) {
	h.r.t.Helper()
	h.io.good(h.reserve(nvme.ReserveCommand{Op: nvme.OpReserveRegister}, 0, key))
}

func (h *host) acquire(action uint8, kind nvme.ReserveType, current, other uint64) uint16 {
	h.r.t.Helper()
	return h.reserve(nvme.ReserveCommand{Op: nvme.OpReserveAcquire, Action: action, Type: kind}, current, other)
}

// Long: a table.
func TestReservationsShutOthersOut(t *testing.T) {
	const no = nvme.ReservationConflict
	for kind, want := range map[nvme.ReserveType]struct{ strangerRead, strangerWrite, memberRead, memberWrite nvme.Status }{
		nvme.WriteExclusive:                {0, no, 0, no},
		nvme.ExclusiveAccess:               {no, no, no, no},
		nvme.WriteExclusiveRegistrantsOnly: {0, no, 0, 0},
		nvme.ExclusiveRegistrantsOnly:      {no, no, 0, 0},
		nvme.WriteExclusiveAllRegistrants:  {0, no, 0, 0},
		nvme.ExclusiveAllRegistrants:       {no, no, 0, 0},
	} {
		r := newRig(t, nil)
		holder, member, stranger := r.host(1, 1), r.host(2, 2), r.host(1, 3)
		holder.register(1)
		member.register(2)
		holder.io.good(holder.acquire(nvme.ActionAcquire, kind, 1, 0))
		for _, c := range []struct {
			h           *host
			read, write nvme.Status
		}{{holder, 0, 0}, {member, want.memberRead, want.memberWrite}, {stranger, want.strangerRead, want.strangerWrite}} {
			c.h.io.bad(c.h.io.start(withSGL(nvme.Read(1, 0, 1, 0), 512), nil), c.read)
			c.h.io.bad(c.h.io.write1(0, pattern(1, 512)), c.write)
			c.h.io.bad(c.h.io.start(nvme.WriteZeroes(1, 0, 1, 0), nil), c.write)
			c.h.io.bad(c.h.io.start(nvme.Flush(1), nil), c.write)
		}
	}
}

func TestAReservationIsTheHostsNotTheControllers(t *testing.T) {
	r := newRig(t, nil)
	a := r.host(1, 1)
	a.register(1)
	a.io.good(a.acquire(nvme.ActionAcquire, nvme.WriteExclusive, 1, 0))
	a.gone()
	again, other := r.host(2, 1), r.host(1, 2)
	again.io.good(again.io.write1(0, pattern(1, 512)))
	other.io.bad(other.io.write1(0, pattern(1, 512)), nvme.ReservationConflict)
}

func TestAReportNamesTheRegistrants(t *testing.T) {
	r := newRig(t, nil)
	a, b := r.host(1, 1), r.host(2, 2)
	a.register(11)
	b.register(22)
	a.io.good(a.acquire(nvme.ActionAcquire, nvme.WriteExclusiveRegistrantsOnly, 11, 0))
	n := uint32(nvme.ReservationStatusLen(2, true))
	s, total, err := nvme.ParseReservationStatus(a.io.get(nvme.ReserveReport(1, n, true), int(n)), true)
	if err != nil || total != int(n) || s.Type != nvme.WriteExclusiveRegistrantsOnly || s.Generation != 2 ||
		len(s.Registrants) != 2 || !s.Registrants[0].Holds || s.Registrants[1].Holds || s.Registrants[1].Key != 22 ||
		s.Registrants[1].HostID != b.data.HostID || s.Registrants[1].ControllerID != b.id {
		t.Errorf("%+v, %d, %v", s, total, err)
	}
	a.io.bad(a.io.start(nvme.ReserveReport(1, n, false), nil), nvme.HostIDFormat.Final())
}

func TestRegistrantsAreToldWhatTheyLose(t *testing.T) {
	r := newRig(t, nil)
	a, b := r.host(1, 1), r.host(2, 2)
	a.register(1)
	b.register(2)
	a.io.good(a.acquire(nvme.ActionAcquire, nvme.WriteExclusiveRegistrantsOnly, 1, 0))
	aer := b.admin.start(nvme.AsyncEvent(), nil)
	b.admin.start(nvme.AsyncEvent(), nil)
	a.io.good(a.reserve(nvme.ReserveCommand{Op: nvme.OpReserveRelease, Type: nvme.WriteExclusiveRegistrantsOnly}, 1, 0))
	a.io.good(a.acquire(nvme.ActionPreempt, nvme.WriteExclusive, 1, 2))
	if e := nvme.ParseEvent(b.admin.good(aer)); e != nvme.ReservationNoticed {
		t.Errorf("%+v", e)
	}
	for i, want := range []nvme.ReservationNotice{{Count: 1, Kind: noteReleased, Available: 1, NSID: 1}, {Count: 2, Kind: noteUnregistered, NSID: 1}, {}} {
		n, err := nvme.ParseReservationNotice(b.log(nvme.LogReservation, nvme.ReservationNoticeLen, false))
		if err != nil || n != want {
			t.Errorf("notification %d: %+v, %v", i, n, err)
		}
	}
}

func TestKeysAreChecked(t *testing.T) {
	r := newRig(t, nil)
	a, b := r.host(1, 1), r.host(2, 2)
	const no = nvme.ReservationConflict
	a.register(1)
	a.io.bad(a.reserve(nvme.ReserveCommand{Op: nvme.OpReserveRegister}, 0, 2), no)
	a.io.bad(a.reserve(nvme.ReserveCommand{Op: nvme.OpReserveRegister, Action: nvme.ActionReplace}, 9, 2), no)
	a.io.good(a.reserve(nvme.ReserveCommand{Op: nvme.OpReserveRegister, Action: nvme.ActionReplace, Ignore: true}, 9, 2))
	a.io.bad(a.acquire(nvme.ActionAcquire, nvme.WriteExclusive, 1, 0), no)
	b.io.bad(b.acquire(nvme.ActionAcquire, nvme.WriteExclusive, 0, 0), no)
	a.io.good(a.acquire(nvme.ActionAcquire, nvme.WriteExclusive, 2, 0))
	release := nvme.ReserveCommand{Op: nvme.OpReserveRelease, Type: nvme.ExclusiveAccess}
	a.io.bad(a.reserve(release, 2, 0), nvme.InvalidField.Final())
	release.Type = nvme.WriteExclusive
	a.io.good(a.reserve(release, 2, 0))
	b.io.good(b.io.write1(0, pattern(1, 512)))
	a.io.good(a.reserve(nvme.ReserveCommand{Op: nvme.OpReserveRegister, Action: nvme.ActionUnregister}, 2, 0))
	a.io.bad(a.acquire(nvme.ActionAcquire, nvme.WriteExclusive, 2, 0), no)
}

// I3: the answer is taken for proof that nothing of the preempted hosts runs.
func TestPreemptAndAbortIsAnsweredWhenTheJobsAreOver(t *testing.T) {
	b := newBench(t, nil)
	old, fresh := b.host(1, 1), b.host(2, 2)
	old.register(1)
	fresh.register(2)
	old.io.good(old.acquire(nvme.ActionAcquire, nvme.WriteExclusiveRegistrantsOnly, 1, 0))
	late, _ := b.Hold(serve.Match{Kind: serve.Writes, First: 16, Last: 17}, true, nil)
	running := old.io.write1(0, pattern(1, 512))
	heldOne := old.io.write1(16, pattern(2, 512))
	asked := old.io.start(withSGL(nvme.Write(1, 24, 1, 0), 512), nil)
	cid := fresh.acquire(nvme.ActionPreemptAbort, nvme.WriteExclusiveRegistrantsOnly, 2, 1)
	fresh.io.open(cid)
	old.io.bad(heldOne, nvme.PreemptAborted)
	b.work(0)
	fresh.io.good(cid)
	old.io.good(running)
	old.io.read()
	old.io.h2c(old.io.r2ts[0], pattern(3, 512))
	old.io.bad(asked, nvme.PreemptAborted)
	late.Release()
	old.io.bad(old.io.write1(0, pattern(4, 512)), nvme.ReservationConflict)
	if b.first(0) != 1 || b.first(16) != 0 || b.first(24) != 0 {
		t.Errorf("blocks begin with %d, %d, %d", b.first(0), b.first(16), b.first(24))
	}
}

func TestPreemptAndAbortEndsLateTasks(t *testing.T) {
	r := newRig(t, nil)
	old, fresh := r.host(1, 1), r.host(2, 2)
	old.register(1)
	fresh.register(2)
	old.io.good(old.acquire(nvme.ActionAcquire, nvme.WriteExclusiveRegistrantsOnly, 1, 0))
	held, _ := r.Hold(serve.Match{Kind: serve.Writes}, true, nil)
	old.io.write1(0, pattern(1, 512))
	old.gone()
	fresh.io.good(fresh.acquire(nvme.ActionPreemptAbort, nvme.WriteExclusiveRegistrantsOnly, 2, 1))
	held.Release()
	if r.first(0) != 0 || r.Late() != 0 {
		t.Error("a late write of a preempted host was executed")
	}
}
