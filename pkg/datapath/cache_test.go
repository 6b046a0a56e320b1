package datapath

import (
	"testing"
	"testing/synctest"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// flushAfter restarts the process, lets its path bring evidence, and returns how
// the next two flushes end.
func flushAfter(r *rig, e blk.Evidence) (first, second blk.Status) {
	r.restart()
	synctest.Wait()
	r.paths[0].set(func() { r.paths[0].auto = true })
	if e != 0 {
		r.paths[0].evidence(e)
	}
	c := newClient(r.T, r.dev)
	a := c.send(blk.Flush, 0, 0, 0, 0)
	synctest.Wait()
	b := c.send(blk.Flush, 0, 0, 0, 0)
	synctest.Wait()
	return a.Status, b.Status
}

func TestACacheLostWhileNoProcessRanFailsTheNextFlushOnce(t *testing.T) {
	withDevice(t, 1, withLedger, func(r *rig) {
		r.paths[0].set(func() { r.paths[0].auto, r.paths[0].facts.Limits.WriteCache = true, true })
		newClient(t, r.dev).write(0, 1)
		synctest.Wait()
		if a, b := flushAfter(r, blk.CacheLost); a != blk.IOError || b != blk.OK {
			t.Fatalf("flushes ended %v, %v; want one error", a, b)
		}
	})
}

func TestALostCacheThatNobodyWasToldOfOutlivesTheProcess(t *testing.T) {
	withDevice(t, 1, withLedger, func(r *rig) {
		r.paths[0].set(func() { r.paths[0].auto, r.paths[0].facts.Limits.WriteCache = true, true })
		newClient(t, r.dev).write(0, 1)
		synctest.Wait()
		r.paths[0].evidence(blk.CacheLost)
		if a, b := flushAfter(r, 0); a != blk.IOError || b != blk.OK {
			t.Fatalf("flushes ended %v, %v; want one error", a, b)
		}
	})
}

func TestWhatWasFlushedBeforeAKillIsNotLostWithTheCache(t *testing.T) {
	withDevice(t, 1, withLedger, func(r *rig) {
		r.paths[0].set(func() { r.paths[0].auto, r.paths[0].facts.Limits.WriteCache = true, true })
		c := newClient(t, r.dev)
		c.write(0, 1)
		synctest.Wait()
		c.send(blk.Flush, 0, 0, 0, 0)
		synctest.Wait()
		if a, b := flushAfter(r, blk.CacheLost); a != blk.OK || b != blk.OK {
			t.Fatalf("flushes ended %v, %v", a, b)
		}
	})
}

func TestAWriteAnsweredWhileAFlushIsUnderWayStaysUnflushed(t *testing.T) {
	withDevice(t, 1, withLedger, func(r *rig) {
		r.dev.cacheWB.Store(true)
		c := newClient(t, r.dev)
		c.write(0, 1)
		synctest.Wait()
		r.paths[0].answer(0, good)
		c.send(blk.Flush, 0, 0, 0, 0)
		c.write(1, 2)
		synctest.Wait()
		r.paths[0].answer(1, good)
		r.paths[0].answer(0, good)
		if a, _ := flushAfter(r, blk.CacheLost); a != blk.IOError {
			t.Fatalf("the flush ended %v", a)
		}
	})
}

func TestAFlushThatFailsLeavesNothingToAnEarlierOne(t *testing.T) {
	withDevice(t, 1, withLedger, func(r *rig) {
		r.dev.cacheWB.Store(true)
		c := newClient(t, r.dev)
		c.write(0, 1)
		synctest.Wait()
		r.paths[0].answer(0, good)
		c.send(blk.Flush, 0, 0, 0, 0)
		c.send(blk.Flush, 0, 0, 0, 0)
		c.write(1, 2)
		synctest.Wait()
		r.paths[0].answer(1, blk.Verdict{Class: blk.TargetError, Status: blk.IOError}) // the second flush
		r.paths[0].answer(1, good)                                                     // the write
		r.paths[0].answer(0, good)                                                     // the first flush
		if a, _ := flushAfter(r, blk.CacheLost); a != blk.IOError {
			t.Fatalf("the flush ended %v", a)
		}
	})
}
