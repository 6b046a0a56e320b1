package datapath

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// commands are those on path i's wire: offset and length in blocks.
func (r *rig) commands(i int) (all [][2]int) {
	synctest.Wait()
	p := r.paths[i]
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.q != nil {
		for _, f := range p.q.pending {
			if f.kicked {
				all = append(all, [2]int{int(f.c.Off / testBlock), int(f.c.Len / testBlock)})
			}
		}
	}
	return all
}

func (r *rig) wantCommands(i int, want ...[2]int) {
	r.Helper()
	got := r.commands(i)
	if len(got) != len(want) {
		r.Fatalf("commands %v, want %v", got, want)
	}
	for k := range got {
		if got[k] != want[k] {
			r.Fatalf("commands %v, want %v", got, want)
		}
	}
}

func writes(c *client, first, n int, v uint64) (all []*blk.Request) {
	for i := range n {
		all = append(all, c.prepare(blk.Write, first+i, 1, v+uint64(i), 0))
	}
	return all
}

func (r *rig) wantStatus(c *client, want blk.Status, all ...*blk.Request) {
	r.Helper()
	synctest.Wait()
	for i, q := range all {
		if !c.answered(q) || q.Status != want {
			r.Fatalf("request %d: answered %v, status %v, want %v", i, c.answered(q), q.Status, want)
		}
	}
}

func deadline(d time.Duration) func(*Config, []*fakePath) {
	return func(c *Config, _ []*fakePath) { c.MergeDeadline = d }
}

func TestContiguousRequestsOfABatchGoAsOneCommand(t *testing.T) {
	withDevice(t, 1, nil, func(r *rig) {
		c := newClient(t, r.dev)
		all := writes(c, 4, 5, 10)
		c.batch(all...)
		r.wantCommands(0, [2]int{4, 5})
		r.paths[0].answer(0, good)
		r.wantStatus(c, blk.OK, all...)
		for i := range 5 {
			if got := r.disk.blocks[4+i]; got != uint64(10+i) {
				t.Fatalf("block %d holds %d", 4+i, got)
			}
		}
		var reads []*blk.Request
		for i := range 5 {
			reads = append(reads, c.prepare(blk.Read, 4+i, 1, 0, 0))
		}
		c.batch(reads...)
		r.wantCommands(0, [2]int{4, 5})
		r.paths[0].answer(0, good)
		r.wantStatus(c, blk.OK, reads...)
		for i, q := range reads {
			if value(q) != uint64(10+i) {
				t.Fatalf("read %d got %d", i, value(q))
			}
		}
	})
}

func TestInterleavedStreamsOfABatchMergeEach(t *testing.T) {
	withDevice(t, 1, nil, func(r *rig) {
		c := newClient(t, r.dev)
		a, b := writes(c, 0, 3, 1), writes(c, 20, 3, 11)
		c.batch(a[0], b[0], a[1], b[1], a[2], b[2])
		r.wantCommands(0, [2]int{0, 3}, [2]int{20, 3})
	})
}

func TestFUAFlushAndOtherPlacesDoNotMerge(t *testing.T) {
	withDevice(t, 1, nil, func(r *rig) {
		c := newClient(t, r.dev)
		c.batch(c.prepare(blk.Write, 0, 1, 1, 0), c.prepare(blk.Write, 1, 1, 2, blk.FUA),
			c.prepare(blk.Flush, 0, 0, 0, 0), c.prepare(blk.Write, 1, 1, 3, 0), c.prepare(blk.Read, 2, 1, 0, 0))
		r.wantCommands(0, [2]int{0, 1}, [2]int{1, 1}, [2]int{0, 0}, [2]int{1, 1}, [2]int{2, 1})
	})
}

func TestMergeOffMergesNothing(t *testing.T) {
	withDevice(t, 1, deadline(MergeOff), func(r *rig) {
		c := newClient(t, r.dev)
		c.batch(writes(c, 0, 3, 1)...)
		r.wantCommands(0, [2]int{0, 1}, [2]int{1, 1}, [2]int{2, 1})
	})
}

func TestAPathThatTakesNoPiecesGetsSingleRequests(t *testing.T) {
	withDevice(t, 1, func(_ *Config, ps []*fakePath) { ps[0].facts.Vectors = false }, func(r *rig) {
		c := newClient(t, r.dev)
		c.batch(writes(c, 0, 3, 1)...)
		r.wantCommands(0, [2]int{0, 1}, [2]int{1, 1}, [2]int{2, 1})
	})
}

func TestAUnitFitsThePathsLargestTransfer(t *testing.T) {
	withDevice(t, 1, func(_ *Config, ps []*fakePath) { ps[0].facts.Limits.MaxTransfer = 2 * testBlock }, func(r *rig) {
		c := newClient(t, r.dev)
		c.batch(writes(c, 0, 5, 1)...)
		r.wantCommands(0, [2]int{0, 2}, [2]int{2, 2}, [2]int{4, 1})
	})
}

func TestAUnitThatFailsIsRetriedRequestByRequest(t *testing.T) {
	withDevice(t, 1, nil, func(r *rig) {
		c := newClient(t, r.dev)
		all := writes(c, 0, 3, 1)
		c.batch(all...)
		r.paths[0].answer(0, blk.Verdict{Class: blk.Retry, Status: blk.IOError})
		r.wantCommands(0, [2]int{0, 1}, [2]int{1, 1}, [2]int{2, 1})
		for range all {
			r.paths[0].answer(0, good)
		}
		r.wantStatus(c, blk.OK, all...)
	})
}

func TestADefiniteErrorOfAUnitFailsItsRequests(t *testing.T) {
	withDevice(t, 1, nil, func(r *rig) {
		c := newClient(t, r.dev)
		all := writes(c, 0, 3, 1)
		c.batch(all...)
		r.paths[0].answer(0, blk.Verdict{Class: blk.TargetError, Status: blk.NoSpace})
		r.wantStatus(c, blk.NoSpace, all...)
	})
}

func TestEveryRequestOfALostUnitIsInDoubt(t *testing.T) {
	withDevice(t, 2, func(_ *Config, ps []*fakePath) { ps[0].facts.Proof = false }, func(r *rig) {
		c := newClient(t, r.dev)
		all := writes(c, 0, 3, 1)
		c.batch(all...)
		r.wantCommands(0, [2]int{0, 3})
		r.paths[0].set(func() { r.paths[0].refuse = errCut })
		r.paths[0].lose(errCut, true)
		r.wantCommands(1, [2]int{0, 1}, [2]int{1, 1}, [2]int{2, 1})
		if n := r.dev.Status().InDoubt; n != 3 {
			t.Fatalf("%d ranges in doubt, want 3", n)
		}
		for range all {
			r.paths[1].answer(0, good)
		}
		r.wantStatus(c, blk.OK, all...)
		newer := c.write(2, 99) // overlaps the last member
		r.wantCommands(1)
		r.paths[0].late(0) // the target executes the lost unit after all
		time.Sleep(r.paths[0].bound + time.Second)
		r.wantCommands(1, [2]int{2, 1})
		r.paths[1].answer(0, good)
		r.wantStatus(c, blk.OK, newer)
		if r.disk.blocks[2] != 99 {
			t.Fatalf("block 2 holds %d", r.disk.blocks[2])
		}
	})
}

func TestNothingMergesWhileSomethingIsInDoubt(t *testing.T) {
	withDevice(t, 2, func(_ *Config, ps []*fakePath) { ps[0].facts.Proof = false }, func(r *rig) {
		c := newClient(t, r.dev)
		c.write(30, 1)
		r.paths[0].set(func() { r.paths[0].refuse = errCut })
		r.paths[0].lose(errCut, true)
		synctest.Wait()
		for r.paths[1].answer(0, good) {
		}
		c.batch(writes(c, 0, 2, 5)...)
		r.wantCommands(1, [2]int{0, 1}, [2]int{1, 1})
	})
}

func TestTheHeadOfAStreamWaitsForMoreWhileTheStreamIsInFlight(t *testing.T) {
	withDevice(t, 1, deadline(50*time.Millisecond), func(r *rig) {
		c := newClient(t, r.dev)
		c.write(0, 1)
		c.write(1, 2)
		c.write(2, 3)
		r.wantCommands(0, [2]int{0, 1})
		r.paths[0].answer(0, good) // nothing of the stream is in flight any more
		r.wantCommands(0, [2]int{1, 2})
		if m := r.dev.Status().Merge; m.Merged != 1 || m.Held != 1 {
			t.Fatalf("%+v", m)
		}
	})
}

func TestTheDeadlineReleasesAHeldUnit(t *testing.T) {
	withDevice(t, 1, deadline(50*time.Millisecond), func(r *rig) {
		c := newClient(t, r.dev)
		c.write(0, 1)
		c.write(1, 2)
		time.Sleep(49 * time.Millisecond)
		r.wantCommands(0, [2]int{0, 1})
		time.Sleep(2 * time.Millisecond)
		r.wantCommands(0, [2]int{0, 1}, [2]int{1, 1})
		if m := r.dev.Status().Merge; m.HeldFor < 49*time.Millisecond || m.HeldFor > 51*time.Millisecond {
			t.Fatalf("%+v", m)
		}
	})
}

func TestABarrierReleasesAHeldUnit(t *testing.T) {
	withDevice(t, 1, deadline(50*time.Millisecond), func(r *rig) {
		c := newClient(t, r.dev)
		c.write(0, 1)
		c.write(1, 2)
		c.send(blk.Flush, 0, 0, 0, 0)
		r.wantCommands(0, [2]int{0, 1}, [2]int{1, 1}, [2]int{0, 0})
	})
}

func TestRandomRequestsAndSingleStreamsAreNeverHeld(t *testing.T) {
	withDevice(t, 1, deadline(50*time.Millisecond), func(r *rig) {
		c := newClient(t, r.dev)
		for _, b := range []int{40, 3, 17, 9} {
			c.write(b, 1)
		}
		for b := range 6 { // sequential, one at a time
			c.write(50+b, 2)
			synctest.Wait()
			for r.paths[0].answer(0, good) {
			}
		}
		if m := r.dev.Status().Merge; m.Held != 0 || m.Merged != 0 {
			t.Fatalf("%+v", m)
		}
	})
}

func TestAShorterDeadlineTakesEffectUnderLoad(t *testing.T) {
	withDevice(t, 1, deadline(50*time.Millisecond), func(r *rig) {
		if err := r.dev.SetMergeDeadline(0); err != nil {
			t.Fatal(err)
		}
		c := newClient(t, r.dev)
		c.write(0, 1)
		c.write(1, 2)
		r.wantCommands(0, [2]int{0, 1}, [2]int{1, 1})
		if err := r.dev.SetMergeDeadline(time.Second); err == nil {
			t.Fatal("a second was accepted")
		}
	})
}

func TestAHeldUnitIsCancelledWithItsConnection(t *testing.T) {
	withDevice(t, 1, deadline(50*time.Millisecond), func(r *rig) {
		c := newClient(t, r.dev)
		c.write(0, 1)
		a, b := c.write(1, 2), c.write(2, 3)
		synctest.Wait()
		c.lane.Close()
		r.wantStatus(c, blk.Cancelled, a, b)
		r.wantCommands(0, [2]int{0, 1})
	})
}

func TestAUnitWaitsForRoomAndGrowsMeanwhile(t *testing.T) {
	withDevice(t, 1, func(_ *Config, ps []*fakePath) { ps[0].room = 1 }, func(r *rig) {
		c := newClient(t, r.dev)
		c.write(40, 1)
		for i := range 4 {
			c.write(i, 2)
		}
		r.wantCommands(0, [2]int{40, 1})
		r.paths[0].answer(0, good)
		r.wantCommands(0, [2]int{0, 4})
	})
}

func TestAnAnswerRunsNoLaneThatWaitsForNothing(t *testing.T) {
	withDevice(t, 1, nil, func(r *rig) {
		c := newClient(t, r.dev)
		c.write(0, 1)
		r.paths[0].answer(0, good)
		if r.dev.Status().Merge.Spared != 1 {
			t.Fatalf("%+v", r.dev.Status().Merge)
		}
	})
}

func TestAUnitThatAPathRefusedCountsAsNothing(t *testing.T) {
	withDevice(t, 1, func(_ *Config, ps []*fakePath) { ps[0].room = 0 }, func(r *rig) {
		c := newClient(t, r.dev)
		all := writes(c, 0, 3, 1)
		c.batch(all...)
		synctest.Wait()
		if n := r.dev.table.Load().best()[0].endedSum(); n != 0 {
			t.Fatalf("%x counted as ended", n)
		}
		r.paths[0].set(func() { r.paths[0].room = 1 })
		c.write(40, 1)
		for r.commands(0) != nil {
			r.paths[0].answer(0, good)
		}
		r.wantStatus(c, blk.OK, all...)
	})
}

func TestTheTunerDoesNotOverruleAnOperator(t *testing.T) {
	withDevice(t, 1, deadline(MergeAuto), func(r *rig) {
		r.dev.tuned(20_000)
		if got := r.dev.Status().Merge.Deadline; got != 20*time.Microsecond {
			t.Fatal(got)
		}
		if err := r.dev.SetMergeDeadline(MergeOff); err != nil {
			t.Fatal(err)
		}
		r.dev.tuned(50_000) // it had begun to decide before
		if got := r.dev.Status().Merge.Deadline; got != MergeOff {
			t.Fatal(got)
		}
	})
}

func TestAutoBeginsWithWhatItFoundForTheVolumeBefore(t *testing.T) {
	begin := func(c *Config, _ []*fakePath) { c.MergeDeadline, c.MergeLearned = MergeAuto, 50*time.Microsecond }
	withDevice(t, 1, begin, func(r *rig) {
		c := newClient(t, r.dev)
		c.write(0, 1)
		c.write(1, 1)
		time.Sleep(tunePeriod + tunePeriod/2)
		if got := r.dev.Status().Merge.Deadline; got != 50*time.Microsecond {
			t.Fatal(got)
		}
		for r.commands(0) != nil {
			r.paths[0].answer(0, good)
		}
	})
}

func TestAHeldUnitThatFailedWasHeldOnce(t *testing.T) {
	withDevice(t, 1, deadline(50*time.Millisecond), func(r *rig) {
		c := newClient(t, r.dev)
		c.write(0, 1)
		c.write(1, 2)
		time.Sleep(51 * time.Millisecond)
		r.wantCommands(0, [2]int{0, 1}, [2]int{1, 1})
		time.Sleep(time.Second)
		r.paths[0].answer(1, blk.Verdict{Class: blk.Retry, Status: blk.IOError})
		r.wantCommands(0, [2]int{0, 1}, [2]int{1, 1})
		if m := r.dev.Status().Merge; m.HeldFor > 51*time.Millisecond {
			t.Fatalf("%+v", m)
		}
	})
}
