package nvmetcp

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/target/subsystem"
)

// twoHosts are two hosts of one namespace, and what each does to its reservation.
type twoHosts struct {
	t    *testing.T
	a, b *Namespace
	pb   *patient
}

func newTwoHosts(t *testing.T) *twoHosts {
	cfg := onLoopback(t, subsystem.Config{})
	h := &twoHosts{t: t}
	_, h.a, _ = dialed(t, cfg)
	cfg.HostNQN, cfg.HostID = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-000000000002", [16]byte{8}
	_, h.b, h.pb = dialed(t, cfg)
	return h
}

func (h *twoHosts) must(n *Namespace, r nvme.ReserveCommand, current, other uint64) {
	h.t.Helper()
	if err := h.reserve(n, r, current, other); err != nil {
		h.t.Fatal(err)
	}
}

func (h *twoHosts) reserve(n *Namespace, r nvme.ReserveCommand, current, other uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return n.Reserve(ctx, r, current, other)
}

var (
	register = nvme.ReserveCommand{Op: nvme.OpReserveRegister}
	acquire  = nvme.ReserveCommand{Op: nvme.OpReserveAcquire, Type: nvme.WriteExclusiveRegistrantsOnly}
	preempt  = nvme.ReserveCommand{Op: nvme.OpReserveAcquire, Action: nvme.ActionPreemptAbort, Type: nvme.WriteExclusiveRegistrantsOnly}
	release  = nvme.ReserveCommand{Op: nvme.OpReserveRelease, Type: nvme.WriteExclusiveRegistrantsOnly}
)

func TestB23AHostThatIsPreemptedWritesNoMore(t *testing.T) {
	h := newTwoHosts(t)
	h.must(h.a, register, 0, 0xA)
	h.must(h.b, register, 0, 0xB)
	h.must(h.b, acquire, 0xB, 0)
	if err := h.reserve(h.a, acquire, 0xA, 0); !errors.Is(err, nvme.ReservationConflict) {
		t.Fatalf("a second holder: %v", err)
	}
	h.must(h.a, preempt, 0xA, 0xB)
	c := &blk.Command{Op: blk.Write, Len: 512, Buf: make([]byte, 512)}
	if !h.b.Submit(c, 0) {
		t.Fatal("not taken")
	}
	h.b.Kick(0)
	if done, lost := h.pb.outcome(t); lost || done != c {
		t.Fatalf("not answered, lost %t", lost)
	}
	if v := c.Verdict; v.Class != blk.TargetError || v.Status != blk.Conflict {
		t.Fatalf("the write of who was preempted: %+v", v)
	}
}

func TestB23AReportNamesHostsByTheir128Bits(t *testing.T) {
	h := newTwoHosts(t)
	h.must(h.a, register, 0, 0xA)
	h.must(h.b, register, 0, 0xB)
	h.must(h.a, acquire, 0xA, 0)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := h.b.Reservations(ctx)
	if err != nil || s.Type != nvme.WriteExclusiveRegistrantsOnly || len(s.Registrants) != 2 {
		t.Fatalf("%+v, %v", s, err)
	}
	for _, r := range s.Registrants {
		if want := map[uint64]byte{0xA: 7, 0xB: 8}[r.Key]; r.HostID != [16]byte{want} || r.Holds != (r.Key == 0xA) {
			t.Errorf("%+v", r)
		}
	}
	h.must(h.a, release, 0xA, 0)
	if s, err = h.b.Reservations(ctx); err != nil || s.Type != nvme.NoReservation {
		t.Fatalf("after the release: %+v, %v", s, err)
	}
}
