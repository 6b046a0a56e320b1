package device_test

import (
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/subsystem"
)

// MDTS of 128 KiB: the largest request there is goes in parts, is whole again,
// and fails as a whole when a part does.
func TestB09ALargeRequestIsCutToMDTSAndFailsAsAWhole(t *testing.T) {
	const size = 1 << 20
	r := newNVMeRig(t, 1, subsystem.Config{TransferShift: 5})
	r.open(r.config(), 1)
	if q := r.do(blk.Write, 0, size, 7); q.Status != blk.OK || r.content(size-8) != 7 {
		t.Fatalf("%v, the end holds %d", q.Status, r.content(size-8))
	}
	if st := r.sub.Stats(); st.Writes != 8 || st.BytesWritten != size {
		t.Errorf("%d writes of %d bytes", st.Writes, st.BytesWritten)
	}
	if q := r.do(blk.Read, 0, size, 0); q.Status != blk.OK || q.Buf[size-8] != 7 {
		t.Errorf("read: %v", q.Status)
	}
	if err := r.sub.Answer(target.Match{Kind: target.Writes, First: 1024, Last: 1024, Count: 1}, nvme.WriteFault.Final()); err != nil {
		t.Fatal(err)
	}
	if q := r.do(blk.Write, 0, size, 8); q.Status != blk.IOError {
		t.Errorf("one part of eight failed: %v", q.Status)
	}
	if q := r.do(blk.Write, 0, size, 9); q.Status != blk.OK || r.content(0) != 9 || r.content(size-8) != 9 {
		t.Errorf("again: %v", q.Status)
	}
}

// The last path is in transition when its controller dies; the next one's log
// says that it may be used again.
func TestB11ATransitionDoesNotOutliveItsController(t *testing.T) {
	r := overNVMe(t, 1)
	r.open(r.config(), 1)
	for round := range 3 {
		r.setAccess(0, datapath.Transitioning)
		w := r.send(blk.Write, 0, 4096, uint64(round))
		r.until("the path unusable", func() bool { return r.dev.Status().Usable == 0 })
		r.portals[0].Drop()
		r.setAccess(0, datapath.Optimized)
		r.until("the write answered", func() bool { _, ok := r.answered(w); return ok })
		if st, _ := r.answered(w); st != blk.OK || r.content(0) != uint64(round) {
			t.Fatalf("round %d: %v", round, st)
		}
	}
}

// A group that stays in transition for longer than its controller said it would
// costs the controller, and no I/O.
func TestB13ATransitionLongerThanANATTEndsTheController(t *testing.T) {
	r := newNVMeRig(t, 2, subsystem.Config{TransitionTime: time.Second})
	r.open(r.config(), 2)
	before := r.sub.Stats().Connects
	r.setAccess(0, datapath.Transitioning)
	r.until("another controller", func() bool { r.load(8, 1); return r.sub.Stats().Connects > before })
	if n := r.saw(datapath.PathDown); n == 0 {
		t.Error("the path was not given up")
	}
	r.setAccess(0, datapath.Optimized)
	r.until("both paths usable", func() bool { r.load(8, 2); return r.dev.Status().Usable == 2 })
}

// Two subsystems that give their namespaces one UUID are two volumes: the other
// one's portal is no path, and it gets no byte.
func TestB16OneIdentifierInTwoSubsystemsMakesNoPaths(t *testing.T) {
	a, b := overNVMe(t, 1), newNVMeRig(t, 1, subsystem.Config{Name: "nqn.2026-01.test:twin"})
	for _, r := range []*rig{a, b} {
		r.show(r.portals[0], volume{id: 0xa})
	}
	cfg := a.config()
	cfg.Portals = append(cfg.Portals, b.portals[0].Addr())
	a.open(cfg, 1)
	for i := range uint64(16) {
		if q := a.do(blk.Write, i*4096, 4096, i); q.Status != blk.OK {
			t.Fatal(q.Status)
		}
	}
	a.until("the refusal told", func() bool { return a.dev.Status().Paths[1].LastError != "" })
	if st := a.dev.Status(); st.Usable != 1 || b.sub.Stats().Connects != 0 {
		t.Errorf("%+v, %+v", st.Paths, b.sub.Stats())
	}
}

// The number of I/O queues changes with each controller.
func TestB22LanesGoOnWithWhateverQueuesAreThere(t *testing.T) {
	r := newNVMeRig(t, 1, subsystem.Config{Queues: 8})
	cfg := fencedAfter(r.config(), 2*time.Second)
	p, _ := cfg.Protocol.(device.NVMe)
	p.Queues = 8
	cfg.Protocol = p
	r.open(cfg, 1)
	for round, queues := range []int{1, 4, 2, 8} {
		if err := r.sub.SetQueues(queues); err != nil {
			t.Fatal(err)
		}
		before := r.sub.Stats().Connects
		all := []*blk.Request{}
		for i := range uint64(32) { // overlaps would wait for the fence
			all = append(all, r.send(blk.Write, (uint64(round)*32+i)*4096, 4096, i))
		}
		r.portals[0].Drop()
		for _, q := range all {
			r.until("a write answered", func() bool { _, ok := r.answered(q); return ok })
			if st, _ := r.answered(q); st != blk.OK {
				t.Fatalf("%d queues: %v", queues, st)
			}
		}
		r.until("another controller", func() bool { return r.sub.Stats().Connects > before && r.dev.Status().Usable == 1 })
	}
}

// A conflict is the client's answer: no other path is asked, and none is given up.
func TestB23AReservationConflictIsFinal(t *testing.T) {
	r := overNVMe(t, 2)
	r.open(r.config(), 2)
	if err := r.sub.Answer(target.Match{Kind: target.Writes, Count: 4}, nvme.ReservationConflict); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(4) { // were one asked for twice, the last would find no conflict
		if q := r.do(blk.Write, i*4096, 4096, 1); q.Status != blk.Conflict {
			t.Errorf("write %d: %v", i, q.Status)
		}
	}
	if q := r.do(blk.Write, 0, 4096, 1); q.Status != blk.OK {
		t.Errorf("no conflict any more: %v", q.Status)
	}
	if st := r.dev.Status(); st.Usable != 2 {
		t.Errorf("%+v", st)
	}
}
