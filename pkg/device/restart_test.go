package device_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/target"
)

// The stale-write story across a kill: the process that sent the write is gone
// (its sockets are reset), the target still holds it, the next process opens
// the volume with the same state directory.
func TestAfterAKillTheNextProcessWaitsForTheFenceOfWhatWasInFlight(t *testing.T) {
	overBoth(t, func(t *testing.T, over kind) {
		inTime(t, func(t *testing.T, fence time.Duration) (late bool) {
			r := over(t, 2)
			cfg := r.config()
			cfg = fencedAfter(cfg, fence)
			r.open(cfg, 2)
			hold, err := r.base.Hold(target.Match{Kind: target.Writes, Count: 1}, true)
			if err != nil {
				t.Fatal(err)
			}
			r.send(blk.Write, 0, 4096, 1)
			<-hold.Arrived()
			lost := r.busyPath()
			left := r.killedState(cfg) // the state directory as a kill leaves it, now
			r.portals[lost].Kill()     // its portal does not come back
			second := newRigOver(r)
			cfg.StateDir = left
			cfg.Events = second.event
			start := time.Now() // the fence's time begins after it
			second.open(cfg, 1)
			w2 := second.send(blk.Write, 0, 4096, 2)
			hold.Release()
			second.until("the late write executed", func() bool { return hold.Len() == 0 })
			if time.Since(start) >= fence || r.lateWrites() == 0 {
				return true
			}
			second.until("the newer write answered", func() bool { _, ok := second.answered(w2); return ok })
			if d := time.Since(start); d < fence {
				t.Fatalf("the newer write was answered after %v, before the fence", d)
			}
			if got := r.content(0); got != 2 {
				t.Fatalf("the block holds write %d, want 2", got)
			}
			return false
		})
	})
}

func TestACleanEndLeavesNothingInDoubt(t *testing.T) {
	overBoth(t, func(t *testing.T, over kind) {
		r := over(t, 2)
		cfg := r.config()
		r.open(cfg, 2)
		r.do(blk.Write, 0, 4096, 1)
		r.lane.Close()
		if err := r.dev.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if m, _ := filepath.Glob(filepath.Join(cfg.StateDir, "*.ledger")); len(m) != 0 {
			t.Fatalf("left behind: %v", m)
		}
		r.open(cfg, 2)
		if st := r.dev.Status(); st.InDoubt != 0 {
			t.Fatalf("%d ranges in doubt", st.InDoubt)
		}
	})
}

func TestAfterAKillAnotherVolumeBehindTheSamePortalIsRefused(t *testing.T) {
	overBoth(t, func(t *testing.T, over kind) {
		r := over(t, 1)
		cfg := r.config()
		r.open(cfg, 1)
		left := r.killedState(cfg)
		r.show(r.portals[0], volume{id: 0xb})
		cfg.StateDir = left
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if _, err := device.Open(ctx, cfg); err == nil || !strings.Contains(err.Error(), "identity mismatch") {
			t.Fatalf("%v", err)
		}
	})
}

func TestAPatientOpenWaitsForAPathThatHasNoHopeYet(t *testing.T) {
	overBoth(t, func(t *testing.T, over kind) {
		r := over(t, 1)
		cfg := r.config()
		cfg.Patient = true
		r.refuse(r.portals[0], true)
		time.AfterFunc(300*time.Millisecond, func() { r.refuse(r.portals[0], false) })
		r.open(cfg, 1)
	})
}

func TestADetachedVolumeIsForgotten(t *testing.T) {
	overBoth(t, func(t *testing.T, over kind) {
		r := over(t, 1)
		cfg := r.config()
		for _, keep := range []bool{true, false} {
			r.open(cfg, 1)
			if keep {
				r.dev.Keep()
			}
			r.lane.Close()
			if err := r.dev.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			m, _ := filepath.Glob(filepath.Join(cfg.StateDir, "*.volume"))
			if (len(m) == 1) != keep {
				t.Fatalf("keep %v, left %v", keep, m)
			}
		}
	})
}

func TestAfterAKillALoginThatWasRedirectedElsewhereIsNoProof(t *testing.T) {
	inTime(t, func(t *testing.T, fence time.Duration) (late bool) {
		r := newRig(t, 2, target.Config{})
		cfg := r.config()
		cfg = fencedAfter(cfg, fence)
		cfg.Portals = cfg.Portals[:1]
		r.open(cfg, 1)
		hold, err := r.base.Hold(target.Match{Kind: target.Writes, Count: 1}, true)
		if err != nil {
			t.Fatal(err)
		}
		r.send(blk.Write, 0, 4096, 1)
		<-hold.Arrived()
		cfg.StateDir = r.killedState(cfg)
		r.srv.Do(func(m *target.Machine) {
			if err := m.Redirect(r.portals[0].Number(), r.portals[1].Addr(), false); err != nil {
				t.Error(err)
			}
		})
		second := newRigOver(r)
		cfg.Events = second.event
		start := time.Now()
		second.open(cfg, 1) // in another portal group: the old session lives on
		return second.newerWriteWins(hold, start, fence)
	})
}

// newerWriteWins: the target still holds a write of the dead process to block 0,
// and a newer one must end over it. late: the machine stood still for longer
// than the fence, and nothing can be told.
func (r *rig) newerWriteWins(hold *target.Hold, start time.Time, fence time.Duration) (late bool) {
	r.Helper()
	doubts := r.dev.Status().InDoubt
	newer := r.send(blk.Write, 0, 4096, 2)
	hold.Release()
	r.until("the late write executed", func() bool { return hold.Len() == 0 })
	if time.Since(start) >= fence {
		return true
	}
	if doubts != 1 {
		r.Fatalf("the write is held by the target, and %d ranges are in doubt", doubts)
	}
	r.until("the newer write answered", func() bool { _, ok := r.answered(newer); return ok })
	if got := r.content(0); got != 2 {
		r.Fatalf("the block holds write %d, want 2", got)
	}
	return false
}

func TestAfterAKillALoginAtHomeIsNoProofForASessionThatWasRedirected(t *testing.T) {
	inTime(t, func(t *testing.T, fence time.Duration) (late bool) {
		r := newRig(t, 2, target.Config{})
		cfg := r.config()
		cfg = fencedAfter(cfg, fence)
		cfg.Portals = cfg.Portals[:1]
		redirect := func(to string) {
			r.srv.Do(func(m *target.Machine) {
				if err := m.Redirect(r.portals[0].Number(), to, false); err != nil {
					t.Error(err)
				}
			})
		}
		redirect(r.portals[1].Addr())
		r.open(cfg, 1)
		hold, err := r.base.Hold(target.Match{Kind: target.Writes, Count: 1}, true)
		if err != nil {
			t.Fatal(err)
		}
		r.send(blk.Write, 0, 4096, 1)
		<-hold.Arrived()
		cfg.StateDir = r.killedState(cfg)
		redirect("")
		second := newRigOver(r)
		cfg.Events = second.event
		start := time.Now()
		second.open(cfg, 1) // not redirected: in another portal group than the session that died
		return second.newerWriteWins(hold, start, fence)
	})
}

func TestAfterAKillASiblingPortalProvesTheFenceOfADeadOne(t *testing.T) {
	r := newRig(t, 0, target.Config{})
	for range 2 {
		p, err := r.srv.ListenPortal("127.0.0.1:0", target.PortalConfig{TPGT: 1})
		if err != nil {
			t.Fatal(err)
		}
		r.portals = append(r.portals, p)
	}
	cfg := r.config()
	cfg = fencedAfter(cfg, time.Hour) // only a proof can end the wait
	r.open(cfg, 2)
	hold, err := r.base.Hold(target.Match{Kind: target.Writes, Count: 1}, true)
	if err != nil {
		t.Fatal(err)
	}
	r.send(blk.Write, 0, 4096, 1)
	<-hold.Arrived()
	lost := r.busyPath()
	cfg.StateDir = r.killedState(cfg)
	r.portals[lost].Kill() // and it does not come back
	second := newRigOver(r)
	cfg.Events = second.event
	second.open(cfg, 1)
	second.do(blk.Write, 0, 4096, 2)
	second.until("the fence", func() bool { return second.saw(datapath.Fenced) > 0 })
	hold.Release()
	if got := r.content(0); got != 2 {
		t.Fatalf("the block holds write %d, want 2", got)
	}
}
