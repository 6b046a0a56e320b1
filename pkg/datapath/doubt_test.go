package datapath

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

var good = blk.Verdict{}
var errCut = errors.New("cut")

// staleStory is facts/datapath.md section 4 row 1: a write held in the target
// of a lost path must not land over a newer one. It returns the block's final
// content; 2 is right.
func staleStory(r *rig) uint64 {
	a, b := r.paths[0], r.paths[1]
	a.set(func() { a.refuse = errCut }) // does not come back
	c := newClient(r.T, r.dev)
	w1 := c.write(0, 1) // goes to the first path
	synctest.Wait()
	holder, other := a, b
	if n, _ := a.count(); n == 0 {
		holder, other = b, a
		b.set(func() { b.refuse = errCut })
		a.set(func() { a.refuse = nil })
	}
	holder.lose(errCut, true)
	synctest.Wait()
	other.answer(0, good) // the retry succeeds
	synctest.Wait()
	if !c.answered(w1) {
		r.Fatal("the retry was not answered")
	}
	w2 := c.write(0, 2)
	synctest.Wait()
	other.answer(0, good)
	synctest.Wait()
	if c.answered(w2) && !r.dev.guardOff {
		r.Error("an overlapping write was answered before the fence")
	}
	holder.late(0) // the lost path's target executes its copy now
	time.Sleep(16 * time.Second)
	synctest.Wait()
	other.answer(0, good)
	synctest.Wait()
	if !c.answered(w2) {
		r.Error("the newer write was not answered after the fence")
	}
	return r.disk.blocks[0]
}

func TestNewerWriteWinsOverAStaleOne(t *testing.T) {
	withDevice(t, 2, nil, func(r *rig) {
		if got := staleStory(r); got != 2 {
			t.Fatalf("block holds write %d, want 2", got)
		}
		if r.saw(Fenced) != 1 {
			t.Fatalf("events %v", r.events)
		}
	})
}

func TestWithoutTheDoubtGuardTheStaleWriteWins(t *testing.T) {
	withDevice(t, 2, nil, func(r *rig) {
		r.dev.guardOff = true
		if got := staleStory(r); got != 1 {
			t.Fatalf("block holds write %d: the story no longer provokes the fault", got)
		}
	})
}

// lossOf sends w on path 0 of a rig whose other path is full, and loses it.
func lossOf(r *rig, send func(c *client) *blk.Request) (*client, *blk.Request) {
	r.paths[1].set(func() { r.paths[1].room = 0 })
	c := newClient(r.T, r.dev)
	req := send(c)
	synctest.Wait()
	if n, _ := r.paths[0].count(); n != 1 {
		r.Fatal("the request is not on path 0")
	}
	r.paths[0].set(func() { r.paths[0].refuse = errCut })
	r.paths[1].set(func() { r.paths[1].room = 64 })
	return c, req
}

func TestReconnectingWithTheSameSessionIsProofOfFence(t *testing.T) {
	withDevice(t, 2, nil, func(r *rig) {
		c, _ := lossOf(r, func(c *client) *blk.Request { return c.write(0, 1) })
		r.paths[0].lose(errCut, true)
		synctest.Wait()
		r.paths[1].answer(0, good)
		w2 := c.write(0, 2)
		synctest.Wait()
		if n, _ := r.paths[1].count(); n != 0 {
			t.Fatal("an overlapping write went out before the fence")
		}
		start := time.Now()
		r.paths[0].set(func() { r.paths[0].refuse = nil; r.paths[0].auto = true })
		r.paths[1].set(func() { r.paths[1].auto = true })
		for !c.answered(w2) {
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
		}
		if d := time.Since(start); d > 10*time.Second {
			t.Fatalf("waited %v although the path came back", d)
		}
	})
}

func TestProofElsewhereFencesWithoutThePath(t *testing.T) {
	withDevice(t, 2, nil, func(r *rig) {
		c, _ := lossOf(r, func(c *client) *blk.Request { return c.write(0, 1) })
		r.paths[0].set(func() { r.paths[0].proofs = 1 })
		r.paths[0].lose(errCut, true)
		synctest.Wait()
		r.paths[1].answer(0, good)
		synctest.Wait()
		c.write(0, 2)
		synctest.Wait()
		if n, _ := r.paths[1].count(); n != 1 {
			t.Fatal("the newer write still waits after the proof")
		}
	})
}

func TestReconnectWithoutReinstatementIsNoProof(t *testing.T) {
	withDevice(t, 2, func(_ *Config, ps []*fakePath) { ps[0].facts.Proof = false }, func(r *rig) {
		c, _ := lossOf(r, func(c *client) *blk.Request { return c.write(0, 1) })
		r.paths[0].set(func() { r.paths[0].refuse = nil })
		r.paths[0].lose(errCut, true)
		time.Sleep(5 * time.Second)
		synctest.Wait() // it is back by now
		r.paths[1].answer(0, good)
		c.write(0, 2)
		synctest.Wait()
		a, _ := r.paths[0].count()
		b, _ := r.paths[1].count()
		if a+b != 0 {
			t.Fatal("an overlapping write went out without a proof")
		}
	})
}

func TestWritesElsewhereDoNotWaitForAFence(t *testing.T) {
	withDevice(t, 2, nil, func(r *rig) {
		c, _ := lossOf(r, func(c *client) *blk.Request { return c.write(0, 1) })
		r.paths[0].lose(errCut, true)
		synctest.Wait()
		c.write(8, 2)
		c.read(0)
		c.send(blk.Flush, 0, 0, 0, 0)
		synctest.Wait()
		if n, _ := r.paths[1].count(); n != 4 {
			t.Fatalf("%d commands on the wire, want the retry, the other write, the read and the flush", n)
		}
	})
}

func TestCommandsNeverSentAreNotInDoubt(t *testing.T) {
	withDevice(t, 2, nil, func(r *rig) {
		r.paths[1].set(func() { r.paths[1].room = 0 })
		c := newClient(r.T, r.dev)
		r.paths[0].set(func() { r.paths[0].q.gated = true }) // taken, but never on the wire
		c.write(0, 1)
		synctest.Wait()
		r.paths[0].set(func() { r.paths[0].refuse = errCut })
		r.paths[1].set(func() { r.paths[1].room = 64 })
		r.paths[0].lose(errCut, true)
		c.write(0, 2)
		synctest.Wait()
		if n, _ := r.paths[1].count(); n != 2 {
			t.Fatalf("%d on the wire, want both writes", n)
		}
	})
}

func TestReadWaitsForAnOverlapAnsweredWithAnError(t *testing.T) {
	withDevice(t, 2, nil, func(r *rig) {
		c, w := lossOf(r, func(c *client) *blk.Request { return c.write(0, 1) })
		r.paths[0].lose(errCut, true)
		synctest.Wait()
		r.paths[1].answer(0, blk.Verdict{Class: blk.TargetError, Status: blk.IOError})
		synctest.Wait()
		if !c.answered(w) || w.Status != blk.IOError {
			t.Fatal("the retry's error was not passed on")
		}
		rd := c.read(0)
		synctest.Wait()
		if n, _ := r.paths[1].count(); n != 0 {
			t.Fatal("the read went out while the failed write may still land")
		}
		r.paths[0].late(0)
		time.Sleep(16 * time.Second)
		synctest.Wait()
		r.paths[1].answer(0, good)
		synctest.Wait()
		if !c.answered(rd) || value(rd) != 1 {
			t.Fatal("the read did not see what landed before the fence")
		}
	})
}

func TestRetryWaitsForAnOverlappingWriteInFlightElsewhere(t *testing.T) {
	withDevice(t, 2, nil, func(r *rig) {
		c, _ := lossOf(r, func(c *client) *blk.Request { return c.write(0, 1) })
		r.paths[0].set(func() { r.paths[0].room = 1 })
		c.write(0, 2) // concurrent: path 0 is full, so on path 1
		synctest.Wait()
		r.paths[0].lose(errCut, true)
		synctest.Wait()
		if n, _ := r.paths[1].count(); n != 1 {
			t.Fatalf("%d commands on path 1, want only the concurrent write", n)
		}
		r.paths[1].answer(0, good)
		synctest.Wait()
		if n, _ := r.paths[1].count(); n != 1 {
			t.Fatal("the retry did not go out once the other write was answered")
		}
	})
}

func TestOfTwoOverlappingDoubtsOnlyTheOlderGoesAtOnce(t *testing.T) {
	withDevice(t, 2, nil, func(r *rig) {
		c, _ := lossOf(r, func(c *client) *blk.Request { return c.write(0, 1) })
		r.paths[1].set(func() { r.paths[1].room = 0 })
		newer := c.write(0, 2)
		synctest.Wait()
		r.paths[1].set(func() { r.paths[1].room = 64 })
		r.paths[0].lose(errCut, true)
		synctest.Wait()
		if n, _ := r.paths[1].count(); n != 1 {
			t.Fatalf("%d retries on the wire, want one", n)
		}
		r.paths[1].answer(0, good)
		synctest.Wait()
		if n, _ := r.paths[1].count(); n != 0 {
			t.Fatal("the newer doubt went out before the fence")
		}
		time.Sleep(16 * time.Second)
		synctest.Wait()
		r.paths[1].answer(0, good)
		synctest.Wait()
		if !c.answered(newer) || r.disk.blocks[0] != 2 {
			t.Fatal("the newer write is not the last")
		}
	})
}

func TestMultiWriterWithholdsAnInDoubtAnswerUntilTheFence(t *testing.T) {
	withDevice(t, 2, func(c *Config, _ []*fakePath) { c.MultiWriter = true }, func(r *rig) {
		c, w := lossOf(r, func(c *client) *blk.Request { return c.write(0, 1) })
		r.paths[0].lose(errCut, true)
		synctest.Wait()
		r.paths[1].answer(0, good)
		synctest.Wait()
		if c.answered(w) {
			t.Fatal("answered before the fence")
		}
		time.Sleep(16 * time.Second)
		synctest.Wait()
		if !c.answered(w) || w.Status != blk.OK {
			t.Fatal("not answered after the fence")
		}
	})
}

func TestClosedConnectionLeavesItsDoubtForReads(t *testing.T) {
	withDevice(t, 2, nil, func(r *rig) {
		c, w := lossOf(r, func(c *client) *blk.Request { return c.write(0, 1) })
		r.paths[1].set(func() { r.paths[1].room = 0 })
		r.paths[0].lose(errCut, true)
		synctest.Wait()
		c.lane.Close() // EOF while the retry has no room
		synctest.Wait()
		if !c.answered(w) || w.Status != blk.Cancelled {
			t.Fatalf("the held write was not cancelled: %v", w.Status)
		}
		r.paths[1].set(func() { r.paths[1].room = 64 })
		c2 := newClient(r.T, r.dev)
		c2.read(0)
		synctest.Wait()
		if n, _ := r.paths[1].count(); n != 0 {
			t.Fatal("a read went out under a cancelled write in doubt")
		}
	})
}

func TestAWriteBetweenTwoWavesDoesNotHoldUpARetry(t *testing.T) {
	withDevice(t, 2, func(_ *Config, ps []*fakePath) {
		for _, p := range ps {
			p.facts.Limits.MaxTransfer, p.room = testBlock, 1024
		}
		ps[0].disk.blocks = make([]uint64, 256)
		for _, p := range ps {
			p.facts.Limits.Size = 256 * testBlock
		}
	}, func(r *rig) {
		c, w1 := lossOf(r, func(c *client) *blk.Request { return c.write(0, 1) })
		r.paths[0].set(func() { r.paths[0].room = 1 })
		r.paths[1].set(func() { r.paths[1].room = 1024 })
		c.send(blk.Write, 0, maxWave+1, 2, 0) // two waves, on path 1
		synctest.Wait()
		r.paths[0].lose(errCut, true)
		synctest.Wait()
		for range maxWave {
			r.paths[1].answer(0, good)
		}
		synctest.Wait()
		r.paths[1].answer(0, good)
		synctest.Wait()
		if !c.answered(w1) {
			t.Fatal("the retry waits for a write that itself waits for the fence")
		}
	})
}
