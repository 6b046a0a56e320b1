package datapath

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// openWith opens a two-path device whose second path differs, and reports
// whether that path was let in.
func secondPathJoins(t *testing.T, change func(*Facts)) (joined bool) {
	withDevice(t, 2, func(_ *Config, ps []*fakePath) {
		ps[1].refuse = errCut // let the first one set the reference
	}, func(r *rig) {
		r.paths[1].set(func() { r.paths[1].refuse = nil; change(&r.paths[1].facts) })
		time.Sleep(30 * time.Second)
		synctest.Wait()
		st := r.dev.Status()
		joined = st.Paths[1].State == "live"
		if _, n := r.paths[1].count(); n != 0 {
			t.Error("a refused path got a command")
		}
		if mism := r.saw(PathIdentityMismatch); !joined && mism != 1 {
			t.Errorf("%d mismatch events, want one however often it is tried", mism)
		}
	})
	return joined
}

func TestPathsOfAnotherVolumeAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Facts){
		"another device id":  func(f *Facts) { f.Identity.Device = "naa.2" },
		"another serial":     func(f *Facts) { f.Identity.Serial = "other" },
		"another target":     func(f *Facts) { f.Identity.Target = "iqn.other" },
		"another block size": func(f *Facts) { f.Identity.BlockSize, f.Limits.BlockSize = 4096, 4096 },
		"a smaller size":     func(f *Facts) { f.Limits.Size -= testBlock },
		"another designator": func(f *Facts) { f.Identity.Others = "eui.1" },
		"a weak identity":    func(f *Facts) { f.Identity.Weak = true },
	} {
		t.Run(name, func(t *testing.T) {
			if secondPathJoins(t, change) {
				t.Fatal("it joined")
			}
		})
	}
}

func TestAnEqualPathJoins(t *testing.T) {
	if !secondPathJoins(t, func(*Facts) {}) {
		t.Fatal("refused")
	}
}

func TestALargerPathIsGrowthOnlyWhenAllPathsAgree(t *testing.T) {
	var grown []uint64
	withDevice(t, 2, func(c *Config, _ []*fakePath) {
		c.Grown = func(n uint64) { grown = append(grown, n) }
	}, func(r *rig) {
		was := r.dev.Size()
		r.paths[0].set(func() { r.paths[0].facts.Limits.Size = 2 * was })
		r.paths[0].evidence(blk.CapacityChanged)
		time.Sleep(time.Second)
		synctest.Wait()
		if r.dev.Size() != was {
			t.Fatal("grew on the word of one path")
		}
		r.paths[1].set(func() { r.paths[1].facts.Limits.Size = 2 * was })
		r.paths[1].evidence(blk.CapacityChanged)
		time.Sleep(time.Second)
		synctest.Wait()
		if r.dev.Size() != 2*was || len(grown) != 1 || grown[0] != 2*was {
			t.Fatalf("size %d, told %v, want %d once", r.dev.Size(), grown, 2*was)
		}
	})
}

func TestGrowthIsToldWhenThePathThatDidNotAgreeIsLost(t *testing.T) {
	var grown []uint64
	withDevice(t, 2, func(c *Config, _ []*fakePath) {
		c.Grown = func(n uint64) { grown = append(grown, n) }
	}, func(r *rig) {
		was := r.dev.Size()
		r.paths[0].set(func() { r.paths[0].facts.Limits.Size = 2 * was })
		r.paths[0].evidence(blk.CapacityChanged)
		time.Sleep(time.Second)
		synctest.Wait()
		r.paths[1].set(func() { r.paths[1].facts.Limits.Size = 2 * was })
		r.paths[1].lose(errCut, false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if r.dev.Size() != 2*was || len(grown) != 1 || grown[0] != 2*was {
			t.Fatalf("size %d, told %v, want %d once", r.dev.Size(), grown, 2*was)
		}
	})
}

func TestNothingIsSentAfterEvidenceOfAnotherIdentity(t *testing.T) {
	withDevice(t, 1, nil, func(r *rig) {
		p := r.paths[0]
		c := newClient(t, r.dev)
		p.set(func() { p.facts.Identity.Device = "naa.2"; p.q.gated = true })
		p.evidence(blk.IdentityChanged)
		w := c.write(0, 1)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		p.set(func() { p.auto = true })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if c.answered(w) || r.disk.blocks[0] != 0 {
			t.Fatal("the write reached the other volume")
		}
		p.set(func() { p.facts.Identity.Device = "naa.1" }) // mapped back
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if !c.answered(w) || w.Status != blk.OK || r.disk.blocks[0] != 1 {
			t.Fatal("the write was not done once the volume was back")
		}
	})
}

func TestCommandsInFlightAtEvidenceOfAnotherIdentityAreCountedAndReported(t *testing.T) {
	withDevice(t, 1, nil, func(r *rig) {
		p := r.paths[0]
		c := newClient(t, r.dev)
		c.write(0, 1)
		c.read(2)
		synctest.Wait()
		p.set(func() { p.facts.Identity.Device = "naa.2"; p.q.gated = true })
		p.evidence(blk.IdentityChanged)
		c.write(4, 1)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, e := range r.events {
			if e.Kind == PathIdentityMismatch {
				if !strings.Contains(e.Detail, "; 2 commands were in flight") {
					t.Fatal(e.Detail)
				}
				return
			}
		}
		t.Fatal("no mismatch")
	})
}

func TestAWeakIdentityIsRefusedUnlessItsWWIDIsGiven(t *testing.T) {
	weak := func(ps []*fakePath) {
		ps[0].facts.Identity = Identity{Target: "iqn.t", Device: "t10.X", Serial: "s", BlockSize: testBlock, Weak: true}
	}
	withDevice(t, 1, func(c *Config, ps []*fakePath) { weak(ps); c.WWID = "t10.X" }, func(*rig) {})
	synctest.Test(t, func(t *testing.T) {
		p := newFakePath("p0", &disk{blocks: make([]uint64, 8)})
		weak([]*fakePath{p})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := Open(ctx, Config{Name: "v"}, []Transport{p}); err == nil || !strings.Contains(err.Error(), "wwid") {
			t.Fatalf("opened, or the error does not name the way out: %v", err)
		}
	})
}

func TestAConnectionThatCloseDoesNotLoseItsAnswersTwice(t *testing.T) {
	withDevice(t, 1, nil, func(r *rig) {
		c := newClient(t, r.dev)
		onWire := c.write(0, 1)
		r.paths[0].set(func() { r.paths[0].room = 1 })
		held := c.write(1, 2)
		synctest.Wait()
		c.lane.Close()
		if !c.answered(held) || held.Status != blk.Cancelled {
			t.Fatal("what was not on a wire was not cancelled")
		}
		if c.answered(onWire) {
			t.Fatal("what is on a wire was answered early")
		}
		r.paths[0].answer(0, good)
		synctest.Wait()
		if !c.answered(onWire) {
			t.Fatal("what was on a wire was never given back")
		}
		if r.dev.lanes[0].Load() != nil {
			t.Fatal("the lane was not freed")
		}
	})
}

func TestAFlushFailsOnceWhenAVolatileCacheWasLostUnderUnflushedWrites(t *testing.T) {
	withDevice(t, 1, nil, func(r *rig) {
		c := newClient(t, r.dev)
		r.paths[0].set(func() { r.paths[0].auto = true })
		c.write(0, 1)
		synctest.Wait()
		r.paths[0].evidence(blk.CacheLost)
		f1 := c.send(blk.Flush, 0, 0, 0, 0)
		synctest.Wait()
		f2 := c.send(blk.Flush, 0, 0, 0, 0)
		synctest.Wait()
		if f1.Status != blk.IOError || f2.Status != blk.OK {
			t.Fatalf("flushes ended %v, %v; want one error", f1.Status, f2.Status)
		}
	})
}

func TestAPowerOnWithEverythingFlushedIsNoError(t *testing.T) {
	withDevice(t, 1, nil, func(r *rig) {
		c := newClient(t, r.dev)
		r.paths[0].set(func() { r.paths[0].auto = true })
		c.write(0, 1)
		synctest.Wait()
		c.send(blk.Flush, 0, 0, 0, 0)
		synctest.Wait()
		r.paths[0].evidence(blk.CacheLost)
		f := c.send(blk.Flush, 0, 0, 0, 0)
		synctest.Wait()
		if f.Status != blk.OK {
			t.Fatalf("the flush ended %v", f.Status)
		}
	})
}

func TestFUAOnADeviceWithoutItIsAWriteAndAFlush(t *testing.T) {
	withDevice(t, 1, func(_ *Config, ps []*fakePath) { ps[0].facts.Limits.FUA = false }, func(r *rig) {
		c := newClient(t, r.dev)
		w := c.send(blk.Write, 0, 1, 7, blk.FUA)
		synctest.Wait()
		r.paths[0].answer(0, good)
		synctest.Wait()
		if c.answered(w) {
			t.Fatal("answered before the flush")
		}
		r.paths[0].mu.Lock()
		op := r.paths[0].q.pending[0].c.Op
		r.paths[0].mu.Unlock()
		r.paths[0].answer(0, good)
		synctest.Wait()
		if op != blk.Flush || !c.answered(w) || w.Status != blk.OK {
			t.Fatalf("second command is a %v, answered %v", op, c.answered(w))
		}
	})
}
