package device_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/subsystem"
)

// slowStore is a store whose first write to block 0 after shut is on its way until
// open: the target cannot call it back.
type slowStore struct {
	target.Store
	shut    atomic.Bool
	arrived chan struct{}
	open    chan struct{}
}

func newSlowStore() *slowStore {
	return &slowStore{arrived: make(chan struct{}), open: make(chan struct{})}
}

func (s *slowStore) WriteAt(p []byte, off uint64) error {
	if off == 0 && s.shut.CompareAndSwap(true, false) {
		close(s.arrived)
		<-s.open
	}
	return s.Store.WriteAt(p, off)
}

// overBothSlowly is overBoth with a slow store.
func overBothSlowly(t *testing.T, story func(r *rig, s *slowStore)) {
	t.Run("iSCSI", func(t *testing.T) {
		s := newSlowStore()
		story(newRig(t, 2, target.Config{LUNs: []target.LUN{{Store: s}}}), s)
	})
	t.Run("NVMe", func(t *testing.T) {
		s := newSlowStore()
		story(newNVMeRig(t, 2, subsystem.Config{Namespaces: []subsystem.Namespace{{Store: s}}}), s)
	})
}

// Issue 8, 6: a writer goes on while another node opens the volume, with one of
// its writes on its way into the store.
func TestAnotherNodeTakesAVolumeOverAndNothingOfTheFirstLandsAfterwards(t *testing.T) {
	overBothSlowly(t, func(r *rig, slow *slowStore) {
		r.open(r.reserved(1), 2)
		r.writes(8192, 1)
		slow.shut.Store(true)
		held := r.send(blk.Write, 0, 4096, 1)
		<-slow.arrived
		second, opened := newRigOver(r), make(chan error, 1)
		go func() { opened <- second.opens(second.reserved(2)) }()
		r.until("writes of the first are refused", func() bool { return r.outcome(r.send(blk.Write, 8192, 4096, 1)) != blk.OK })
		select {
		case err := <-opened:
			r.Fatalf("the second is open (%v), and a write of the first is still on its way into the store", err)
		default:
		}
		close(slow.open)
		r.check(<-opened)
		r.outcome(held)
		r.check(second.lanes())
		second.writes(0, 2)
		second.writes(8192, 2)
		for range 20 {
			if st := r.outcome(r.send(blk.Write, 8192, 4096, 1)); st == blk.OK {
				r.Fatal("a write of the first was accepted")
			}
		}
		if a, b := second.content(0), second.content(8192); a != 2 || b != 2 {
			r.Fatalf("the blocks hold writes %d and %d, want 2", a, b)
		}
		r.until("the first knows", func() bool { return r.dev.Lost() != "" && r.saw(device.ReservationLost) == 1 })
		r.check(second.over())
		if st := r.outcome(r.send(blk.Write, 0, 4096, 1)); st == blk.OK || second.content(0) != 2 {
			r.Fatalf("the first writes again once the second has left: %v", st)
		}
	})
}

// takenOver is the story of a node whose volume another one opens, as the storage
// tells it, whatever that is.
func (r *rig) takenOver() {
	r.Helper()
	paths := len(r.addresses())
	r.open(r.reserved(1), paths)
	r.writes(0, 1)
	second := r.node(r.reserved(2), paths)
	for range 20 {
		if st := r.outcome(r.send(blk.Write, 0, 4096, 1)); st == blk.OK {
			r.Fatal("a write of the first was accepted")
		}
	}
	second.writes(0, 2)
	r.until("the first knows", func() bool { return r.dev.Lost() != "" })
	r.check(second.over())
	if keys, held := r.table(); len(keys) != 0 || held {
		r.Errorf("left: %x, held %v", keys, held)
	}
	if st := r.outcome(r.send(blk.Write, 0, 4096, 1)); st == blk.OK {
		r.Fatal("the first writes again once the second has left")
	}
	r.check(r.over())
	again := r.node(r.reserved(1), paths)
	again.writes(0, 3)
	r.check(again.over())
}

// opens opens the volume, without a lane. Any goroutine.
func (r *rig) opens(cfg device.Config) (err error) {
	cfg.Events = r.event
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r.dev, err = device.Open(ctx, cfg)
	return err
}

// lanes opens the lane of a device that is open, and has it end with the test.
func (r *rig) lanes() (err error) {
	r.lane, err = r.dev.OpenLane(64)
	r.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		r.lane.Close()
		_ = r.dev.Close(ctx)
	})
	return err
}

func TestTheEndOfADeviceLeavesNoRegistration(t *testing.T) {
	overBoth(t, func(t *testing.T, over kind) {
		r := over(t, 3)
		r.open(r.reserved(1), 3)
		r.writes(0, 1)
		if keys, held := r.table(); len(keys) == 0 || !held {
			t.Fatalf("keys %x, held %v", keys, held)
		}
		r.portals[2].Kill() // it may be the holder's
		r.until("two paths", func() bool { return r.dev.Status().Usable == 2 })
		r.check(r.over())
		if keys, held := r.table(); len(keys) != 0 || held {
			t.Fatalf("keys %x, held %v", keys, held)
		}
		if n := r.saw(device.ReservationLeft); n != 0 {
			t.Errorf("%d complaints", n)
		}
	})
}

func TestADeviceWhosePathsAreAllDeadEndsAndTellsWhatItLeaves(t *testing.T) {
	overBoth(t, func(t *testing.T, over kind) {
		r := over(t, 2)
		r.open(r.reserved(1), 2)
		for _, p := range r.portals {
			p.Kill()
		}
		r.until("no path", func() bool { return r.dev.Status().Usable == 0 })
		r.check(r.over())
		if n := r.saw(device.ReservationLeft); n != 1 {
			t.Errorf("%d events say that the reservation stays", n)
		}
		for _, p := range r.portals {
			r.check(p.Start())
		}
		r.node(r.reserved(1), 2).writes(0, 2) // the same node, anew
	})
}

func TestAfterAKillTheNextProcessGoesOnWithItsReservation(t *testing.T) {
	overBoth(t, func(t *testing.T, over kind) {
		r := over(t, 2)
		cfg := r.reserved(1)
		r.open(cfg, 2)
		r.writes(0, 1)
		before, _ := r.table()
		next := r.node(r.killed(cfg), 2)
		next.writes(0, 2)
		if after, held := r.table(); !held || len(after) != len(before) || after[0] != before[0] {
			t.Errorf("keys %x, held %v, before %x", after, held, before)
		}
		if n := next.saw(device.Reserved); n != 0 {
			t.Error("it took the volume anew")
		}
		r.check(next.over())
		if keys, _ := r.table(); len(keys) != 0 {
			t.Errorf("left behind: %x", keys)
		}
	})
}

// A node that was killed, and whose volume another took meanwhile, gets its device
// back, because that has users, and all its I/O fails.
func TestAfterAKillANodeDoesNotTakeBackWhatAnotherHas(t *testing.T) {
	for _, left := range []bool{false, true} {
		t.Run(fmt.Sprintf("other left %v", left), func(t *testing.T) {
			overBoth(t, func(t *testing.T, over kind) {
				r := over(t, 2)
				cfg := r.reserved(1)
				r.open(cfg, 2)
				r.writes(0, 1)
				cfg = r.killed(cfg)
				second := r.node(r.reserved(2), 2)
				second.writes(0, 2)
				if left {
					r.check(second.over())
				}
				for range 2 { // and it stays so
					next := r.node(cfg, 1)
					if st := next.outcome(next.send(blk.Write, 0, 4096, 1)); st == blk.OK {
						t.Fatal("the first wrote")
					}
					if st := next.outcome(next.send(blk.Read, 0, 4096, 0)); st == blk.OK || next.dev.Lost() == "" {
						t.Errorf("a read is answered with %v, lost %q", st, next.dev.Lost())
					}
					next.dev.Keep()
					r.check(next.over())
				}
				if !left {
					second.writes(0, 3)
					r.check(second.over())
				}
				cfg.Patient = false // a new stage
				r.node(cfg, 2).writes(0, 4)
			})
		})
	}
}

func TestAPathThatJoinsLaterMayWrite(t *testing.T) {
	overBoth(t, func(t *testing.T, over kind) {
		r := over(t, 2)
		r.portals[1].Kill()
		r.open(r.reserved(1), 1)
		r.writes(0, 1)
		r.check(r.portals[1].Start())
		r.until("two paths", func() bool { return r.dev.Status().Usable == 2 })
		r.portals[0].Kill() // the holder's
		r.until("one path", func() bool { return r.dev.Status().Usable == 1 })
		r.writes(4096, 2)
		r.check(r.portals[0].Start())
		r.until("two paths again", func() bool { return r.dev.Status().Usable == 2 })
		r.writes(8192, 3)
		r.writes(12288, 3)
	})
}

// What took the registrations away is the storage's restart, or another node that
// has come and gone: nobody can tell, so nothing is written.
func TestAVolumeWhoseRegistrationsAreForgottenFails(t *testing.T) {
	for _, down := range []bool{false, true} {
		t.Run(fmt.Sprintf("paths down %v", down), func(t *testing.T) {
			overBoth(t, func(t *testing.T, over kind) {
				r := over(t, 2)
				cfg := r.reserved(1)
				r.open(cfg, 2)
				r.writes(0, 1)
				if down {
					r.portals[0].Drop()
					r.portals[1].Drop()
				}
				r.clear()
				r.until("it is told", func() bool {
					return r.dev.Lost() != "" || down && r.outcome(r.send(blk.Read, 0, 4096, 0)) != blk.OK
				})
				if st := r.outcome(r.send(blk.Write, 0, 4096, 2)); st == blk.OK || r.content(0) != 1 {
					t.Fatalf("a write is answered with %v, the block holds %d", st, r.content(0))
				}
				r.check(r.over())
				cfg.Events = nil
				r.node(cfg, 2).writes(0, 3)
			})
		})
	}
}

func TestAReservationForReadingOnlyIsRefused(t *testing.T) {
	r := newRig(t, 1, target.Config{})
	cfg := r.reserved(1)
	cfg.ReadOnly = true
	if cfg.Check() == nil {
		t.Error("accepted")
	}
}

// A conflict of a moment, while the volume is still this node's, is not the client's.
func TestAConflictOfAVolumeThatIsStillHeldIsAskedAgain(t *testing.T) {
	r := overNVMe(t, 2)
	r.open(r.reserved(1), 2)
	if err := r.sub.Answer(target.Match{Kind: target.Writes, Count: 3}, nvme.ReservationConflict); err != nil {
		t.Fatal(err)
	}
	r.writes(0, 7)
	if r.content(0) != 7 || r.dev.Lost() != "" {
		t.Errorf("content %d, lost %q", r.content(0), r.dev.Lost())
	}
	r.check(r.over())
}
