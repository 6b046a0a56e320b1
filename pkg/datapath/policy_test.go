package datapath

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

func TestIOIsHeldWhileNoPathIsUsableAndGoesOnInOrder(t *testing.T) {
	withDevice(t, 2, nil, func(r *rig) {
		c := newClient(t, r.dev)
		for _, p := range r.paths {
			p.set(func() { p.refuse = errCut })
			p.lose(errCut, false)
		}
		var reqs []*blk.Request
		for i := range 5 {
			reqs = append(reqs, c.write(i, uint64(i+1)))
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		for _, q := range reqs {
			if c.answered(q) {
				t.Fatalf("answered %v with no path", q.Status)
			}
		}
		r.paths[1].set(func() { r.paths[1].refuse = nil })
		time.Sleep(backoffMax)
		synctest.Wait()
		r.paths[1].mu.Lock()
		defer r.paths[1].mu.Unlock()
		for i, f := range r.paths[1].q.pending {
			if f.c.Off != uint64(i)*testBlock {
				t.Fatalf("place %d holds offset %d: not in order of submission", i, f.c.Off)
			}
		}
	})
}

func TestNoPathTimeoutFailsIOUntilAPathIsBack(t *testing.T) {
	withDevice(t, 1, func(c *Config, _ []*fakePath) { c.NoPathTimeout = 10 * time.Second }, func(r *rig) {
		c := newClient(t, r.dev)
		p := r.paths[0]
		p.set(func() { p.refuse = errCut })
		p.lose(errCut, false)
		start := time.Now()
		w := c.write(0, 1)
		var took time.Duration
		c.mu.Lock()
		c.done = func(*blk.Request) { took = time.Since(start) }
		c.mu.Unlock()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if !c.answered(w) || w.Status != blk.IOError || took != 10*time.Second {
			t.Fatalf("answered %v with %v after %v, want an I/O error after exactly 10s", c.answered(w), w.Status, took)
		}
		if w2 := c.write(1, 1); !c.answered(w2) || w2.Status != blk.IOError {
			t.Fatal("a new request was held after the timeout")
		}
		p.set(func() { p.refuse, p.auto = nil, true })
		time.Sleep(backoffMax)
		synctest.Wait()
		w3 := c.write(2, 1)
		synctest.Wait()
		if !c.answered(w3) || w3.Status != blk.OK {
			t.Fatalf("after the path came back: %v", w3.Status)
		}
	})
}

func TestADeadPathLeavesItsSiblingAlone(t *testing.T) {
	withDevice(t, 2, nil, func(r *rig) {
		c := newClient(t, r.dev)
		r.paths[1].set(func() { r.paths[1].auto = true })
		r.paths[0].set(func() { r.paths[0].refuse = errCut })
		r.paths[0].lose(errCut, false)
		start := time.Now()
		for i := range 100 {
			w := c.write(i%8, uint64(i+1))
			synctest.Wait()
			if !c.answered(w) {
				t.Fatal("a request waited for the dead path")
			}
		}
		if time.Since(start) != 0 {
			t.Fatalf("the sibling's I/O took %v of virtual time", time.Since(start))
		}
		r.paths[1].mu.Lock()
		defer r.paths[1].mu.Unlock()
		if r.paths[1].connects != 1 {
			t.Fatalf("the sibling was connected %d times", r.paths[1].connects)
		}
	})
}

func TestPathsAreTriedForEverWithBoundedPauses(t *testing.T) {
	withDevice(t, 2, nil, func(r *rig) {
		p := r.paths[0]
		p.set(func() { p.refuse = errCut; p.connects = 0 })
		p.lose(errCut, false)
		time.Sleep(time.Hour)
		synctest.Wait()
		p.mu.Lock()
		n := p.connects
		p.mu.Unlock()
		if n < 720 || n > 4000 {
			t.Fatalf("%d attempts in an hour, want one every 1.25 to 5 s", n)
		}
	})
}

func TestAnEventResetsTheBackOff(t *testing.T) {
	withDevice(t, 2, nil, func(r *rig) {
		p := r.paths[0]
		p.set(func() { p.refuse = errCut })
		p.lose(errCut, false)
		time.Sleep(time.Minute)
		synctest.Wait()
		p.set(func() { p.refuse = nil })
		r.dev.Retry()
		synctest.Wait()
		if st := r.dev.Status(); st.Paths[0].State != "live" {
			t.Fatalf("the path is %s although it was told to try", st.Paths[0].State)
		}
	})
}

func TestBusyForEverEndsAtTheCommandTimeout(t *testing.T) {
	withDevice(t, 1, nil, func(r *rig) {
		c := newClient(t, r.dev)
		w := c.write(0, 1)
		start := time.Now()
		for !c.answered(w) && time.Since(start) < 2*time.Minute {
			r.paths[0].answer(0, blk.Verdict{Class: blk.Busy, Status: blk.IOError})
			time.Sleep(5 * time.Millisecond)
			synctest.Wait()
		}
		if d := time.Since(start); w.Status != blk.IOError || d < 29*time.Second || d > 32*time.Second {
			t.Fatalf("ended %v after %v", w.Status, d)
		}
		if st := r.dev.Status(); st.Paths[0].Errors != 0 {
			t.Fatal("BUSY was taken for a dead path")
		}
	})
}

func TestATargetThatAsksForTimeIsLeftAloneForSoLong(t *testing.T) {
	for _, class := range []blk.PathStatus{blk.Retry, blk.RetryLater, blk.Busy} {
		for after, want := range map[uint16]time.Duration{12: 1200 * time.Millisecond, 65535: 15 * time.Second} { // half of CommandTimeout
			withDevice(t, 1, nil, func(r *rig) {
				c := newClient(t, r.dev)
				w := c.write(0, 1)
				synctest.Wait()
				r.paths[0].answer(0, blk.Verdict{Class: class, Status: blk.IOError, After: after})
				start := time.Now()
				for !r.paths[0].answer(0, good) {
					time.Sleep(10 * time.Millisecond)
					synctest.Wait()
				}
				synctest.Wait()
				if d := time.Since(start); !c.answered(w) || w.Status != blk.OK || d < want || d > want+time.Second {
					t.Errorf("%v, after %d: %v, sent again after %v, want %v", class, after, w.Status, d, want)
				}
			})
		}
	}
}

func TestARefusalByAccessStateMovesOnAtOnceAndKeepsThePath(t *testing.T) {
	withDevice(t, 2, nil, func(r *rig) {
		c, w := lossOf(r, func(c *client) *blk.Request { return c.write(0, 1) })
		r.paths[0].set(func() { r.paths[0].facts.Access = Standby })
		r.paths[0].answer(0, blk.Verdict{Class: blk.WrongState, Status: blk.IOError, Evidence: blk.AccessChanged})
		synctest.Wait()
		r.paths[1].answer(0, good)
		synctest.Wait()
		if !c.answered(w) || w.Status != blk.OK {
			t.Fatal("not done on the other path at once")
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		st := r.dev.Status()
		if st.Paths[0].State != "live" || st.Paths[0].Access != "standby" || st.InDoubt != 0 {
			t.Fatalf("%+v", st.Paths[0])
		}
	})
}

func TestAMediumErrorGoesUpAtOnceAndKeepsThePath(t *testing.T) {
	withDevice(t, 2, nil, func(r *rig) {
		c, w := lossOf(r, func(c *client) *blk.Request { return c.read(0) })
		r.paths[0].answer(0, blk.Verdict{Class: blk.TargetError, Status: blk.IOError})
		synctest.Wait()
		if !c.answered(w) || w.Status != blk.IOError {
			t.Fatal("not passed on")
		}
		if st := r.dev.Status(); st.Usable != 2 {
			t.Fatalf("%d paths usable", st.Usable)
		}
	})
}

func TestOpenNamesEveryPathAndItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{blocks: make([]uint64, 8)}
		a, b := newFakePath("10.0.0.1:3260", d), newFakePath("10.0.0.2:3260", d)
		a.refuse, b.refuse = errCut, errCut
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := Open(ctx, Config{Name: "vol"}, []Transport{a, b})
		if err == nil || !strings.Contains(err.Error(), "10.0.0.1:3260: cut") || !strings.Contains(err.Error(), "10.0.0.2:3260: cut") {
			t.Fatalf("%v", err)
		}
	})
}

func TestCloseWaitsForFencesOrSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, disk: &disk{blocks: make([]uint64, 8)}}
		p := newFakePath("p0", r.disk)
		var err error
		if r.dev, err = Open(t.Context(), Config{Name: "vol", NoPathTimeout: 0}, []Transport{p}); err != nil {
			t.Fatal(err)
		}
		c := newClient(t, r.dev)
		c.write(0, 1)
		synctest.Wait()
		p.set(func() { p.refuse = errCut })
		p.lose(errCut, true)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := r.dev.Close(ctx); err == nil || !strings.Contains(err.Error(), "in doubt") {
			t.Fatalf("closed with a fence pending: %v", err)
		}
	})
}

func TestALargeRequestIsSplitAndAnsweredAfterAllParts(t *testing.T) {
	withDevice(t, 1, func(_ *Config, ps []*fakePath) { ps[0].facts.Limits.MaxTransfer = 2 * testBlock }, func(r *rig) {
		c := newClient(t, r.dev)
		w := c.send(blk.Write, 0, 9, 5, 0)
		synctest.Wait()
		if n, _ := r.paths[0].count(); n != 5 {
			t.Fatalf("%d parts, want 5", n)
		}
		for range 4 {
			r.paths[0].answer(0, good)
		}
		if c.answered(w) {
			t.Fatal("answered with a part open")
		}
		r.paths[0].answer(0, good)
		if !c.answered(w) || r.disk.blocks[8] != 5 {
			t.Fatal("not answered after the last part")
		}
	})
}

func TestARequestLargerThanAWaveGoesInWaves(t *testing.T) {
	withDevice(t, 1, func(_ *Config, ps []*fakePath) {
		ps[0].facts.Limits.MaxZero, ps[0].facts.Limits.MaxTransfer = 0, testBlock
		ps[0].facts.Limits.Size = 64 * testBlock
		ps[0].room = 10
	}, func(r *rig) {
		c := newClient(t, r.dev)
		for i := range r.disk.blocks {
			r.disk.blocks[i] = 9
		}
		r.paths[0].set(func() { r.paths[0].auto = true })
		w := c.send(blk.WriteZeroes, 0, 64, 0, 0)
		synctest.Wait()
		if !c.answered(w) || w.Status != blk.OK {
			t.Fatal("not done")
		}
		for i, v := range r.disk.blocks {
			if v != 0 {
				t.Fatalf("block %d was not zeroed", i)
			}
		}
	})
}

func TestTwoPathsShareTheLoad(t *testing.T) {
	withDevice(t, 2, nil, func(r *rig) {
		c := newClient(t, r.dev)
		for _, p := range r.paths {
			p.set(func() { p.auto = true })
		}
		for i := range 200 {
			c.write(i%8, 1)
			synctest.Wait()
		}
		_, a := r.paths[0].count()
		_, b := r.paths[1].count()
		if a != 100 || b != 100 {
			t.Fatalf("shares %d and %d", a, b)
		}
	})
}

func TestBusyAfterALongOutageIsRetriedNotFailed(t *testing.T) {
	withDevice(t, 1, nil, func(r *rig) {
		p := r.paths[0]
		c := newClient(t, r.dev)
		w := c.write(0, 1)
		synctest.Wait()
		p.set(func() { p.refuse = errCut })
		p.lose(errCut, false)
		time.Sleep(5 * time.Minute)
		p.set(func() { p.refuse = nil })
		for n := 0; n == 0; n, _ = p.count() {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		p.answer(0, blk.Verdict{Class: blk.Busy, Status: blk.IOError})
		synctest.Wait()
		if c.answered(w) {
			t.Fatalf("%v: the time without a path counts against the command timeout (I5)", w.Status)
		}
	})
}

func TestZeroesWrittenAsWritesFitAPathOfLargeTransfers(t *testing.T) {
	withDevice(t, 1, func(_ *Config, ps []*fakePath) {
		ps[0].disk.blocks = make([]uint64, 8192)
		l := &ps[0].facts.Limits
		l.Size, l.MaxTransfer, l.MaxZero = 8192*testBlock, 4<<20, 0
	}, func(r *rig) {
		r.paths[0].set(func() { r.paths[0].auto = true })
		c := newClient(t, r.dev)
		w := c.send(blk.WriteZeroes, 0, 8192, 0, 0)
		synctest.Wait()
		if !c.answered(w) || w.Status != blk.OK {
			t.Fatal("not written")
		}
	})
}

func TestARequestWhosePathWasLostIsNotGivenUpForOneBusyLongAfter(t *testing.T) {
	withDevice(t, 2, func(c *Config, _ []*fakePath) { c.CommandTimeout, c.MinPaths = 2*time.Second, 2 }, func(r *rig) {
		c := newClient(t, r.dev)
		q := c.read(0)
		synctest.Wait()
		r.paths[0].lose(errCut, false)
		time.Sleep(3 * time.Second) // the other path takes its time
		for _, v := range []blk.Verdict{{Class: blk.Busy, Status: blk.IOError}, good} {
			if !r.paths[0].answer(0, v) && !r.paths[1].answer(0, v) {
				t.Fatal("nothing was sent again")
			}
			time.Sleep(time.Second)
		}
		if !c.answered(q) || q.Status != blk.OK {
			t.Fatalf("answered %v, status %v", c.answered(q), q.Status)
		}
	})
}

func TestTheResultOfAWaveIsItsWorstVerdict(t *testing.T) {
	for a := range classes {
		for _, after := range []uint16{0, 1, 65535} {
			v := blk.Verdict{Class: blk.PathStatus(a), Status: blk.Conflict, After: after}
			if got := unpack(pack(v)); got != v {
				t.Errorf("%+v became %+v", v, got)
			}
			for b := range classes {
				w := blk.Verdict{Class: blk.PathStatus(b), Status: blk.IOError}
				if severity[a] > severity[b] && pack(v) <= pack(w) {
					t.Errorf("%+v does not outrank %+v", v, w)
				}
			}
		}
	}
}
