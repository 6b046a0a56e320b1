package datapath

import (
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

func withLedger(c *Config, _ []*fakePath) {
	c.Ledger, c.LedgerKey, c.Replays = newMem(), LedgerKey("boot/vol"), true
}

// beforeTheKill: a write is on path 0's wire, the target holds it, and the
// process dies; path 0 does not come back. It returns the new process's client.
func beforeTheKill(r *rig) *client {
	lossOf(r, func(c *client) *blk.Request { return c.write(0, 1) })
	r.restart()
	synctest.Wait()
	return newClient(r.T, r.dev)
}

func TestAfterARestartANewerWriteWinsOverTheDeadProcesssOne(t *testing.T) {
	withDevice(t, 2, withLedger, func(r *rig) {
		c := beforeTheKill(r)
		replay := c.write(0, 1)
		synctest.Wait()
		r.paths[1].answer(0, good)
		if !c.answered(replay) {
			t.Fatal("the replay did not go at once")
		}
		newer := c.write(0, 2)
		synctest.Wait()
		if n, _ := r.paths[1].count(); n != 0 {
			t.Fatal("an overlapping write went out before the fence")
		}
		r.paths[0].late(0)
		time.Sleep(16 * time.Second)
		synctest.Wait()
		r.paths[1].answer(0, good)
		if !c.answered(newer) || r.disk.blocks[0] != 2 {
			t.Fatalf("block holds write %d", r.disk.blocks[0])
		}
	})
}

func TestWithoutTheLedgerTheDeadProcesssWriteWins(t *testing.T) {
	withDevice(t, 2, withLedger, func(r *rig) {
		lossOf(r, func(c *client) *blk.Request { return c.write(0, 1) })
		synctest.Wait()
		clear(r.ledger) // the guard off: nothing was written down
		r.restart()
		c := newClient(t, r.dev)
		c.write(0, 1)
		synctest.Wait()
		r.paths[1].answer(0, good)
		c.write(0, 2)
		synctest.Wait()
		r.paths[1].answer(0, good)
		r.paths[0].late(0)
		if r.disk.blocks[0] != 1 {
			t.Fatal("the story no longer provokes the fault")
		}
	})
}

func TestAReplayGoesAtOnceOnlyOncePerRequestLeft(t *testing.T) {
	withDevice(t, 2, withLedger, func(r *rig) {
		c := beforeTheKill(r)
		c.write(0, 1)
		synctest.Wait()
		r.paths[1].answer(0, good)
		c.write(0, 1) // looks the same, but is a new one
		synctest.Wait()
		if n, _ := r.paths[1].count(); n != 0 {
			t.Fatal("a second equal write was taken for the replay")
		}
	})
}

func TestAWriteAcknowledgedElsewhereStaysInDoubtAcrossAKill(t *testing.T) {
	withDevice(t, 2, withLedger, func(r *rig) {
		c, w := lossOf(r, func(c *client) *blk.Request { return c.write(0, 1) })
		r.paths[0].lose(errCut, true)
		synctest.Wait()
		r.paths[1].answer(0, good) // retry acknowledged on B
		synctest.Wait()
		if !c.answered(w) {
			t.Fatal("not answered")
		}
		r.restart() // then the kill
		c = newClient(t, r.dev)
		c.write(0, 2)
		synctest.Wait()
		if n, _ := r.paths[1].count(); n != 0 {
			t.Fatal("the doubt was forgotten")
		}
	})
}

func TestAnsweredWritesAreNotInDoubtAfterARestart(t *testing.T) {
	withDevice(t, 2, withLedger, func(r *rig) {
		c := newClient(t, r.dev)
		w := c.write(0, 1)
		synctest.Wait()
		r.paths[0].answer(0, good)
		r.paths[1].answer(0, good)
		if !c.answered(w) {
			t.Fatal("not answered")
		}
		r.restart()
		if n := r.dev.doubt.active.Load(); n != 0 {
			t.Fatalf("%d ranges in doubt", n)
		}
	})
}

func TestAnUnreadableLedgerMakesEveryWriteWaitForTheFences(t *testing.T) {
	for name, damage := range map[string]func(b []byte){
		"damaged magic":  func(b []byte) { b[3] ^= 1 },
		"newer version":  func(b []byte) { binary.NativeEndian.PutUint64(b[8*wordVersion:], ledgerVersion+1) },
		"lost records":   func(b []byte) { binary.NativeEndian.PutUint64(b[8*wordOverflow:], 1) },
		"killed in Open": func(b []byte) { binary.NativeEndian.PutUint64(b, ^uint64(0)) },
	} {
		t.Run(name, func(t *testing.T) {
			withDevice(t, 2, withLedger, func(r *rig) {
				for _, p := range r.paths {
					p.set(func() { p.facts.Proof = false })
				}
				damage(r.ledger)
				r.restart()
				c := newClient(t, r.dev)
				w := c.write(40, 1)
				c.read(40)
				synctest.Wait()
				a, _ := r.paths[0].count()
				b, _ := r.paths[1].count()
				if a+b != 1 {
					t.Fatalf("%d commands out, want the read alone", a+b)
				}
				time.Sleep(16 * time.Second)
				for _, p := range r.paths {
					p.set(func() { p.auto = true })
					p.answer(0, good)
					p.answer(0, good)
				}
				synctest.Wait()
				if !c.answered(w) {
					t.Fatal("not answered after the fences")
				}
			})
		})
	}
}

func TestALedgerOfAnotherBootOrVolumeCountsForNothing(t *testing.T) {
	withDevice(t, 2, withLedger, func(r *rig) {
		lossOf(r, func(c *client) *blk.Request { return c.write(0, 1) })
		r.cfg.LedgerKey++
		r.restart()
		if n := r.dev.doubt.active.Load(); n != 0 {
			t.Fatalf("%d ranges in doubt", n)
		}
	})
}

func TestWithoutReplaysReadsWaitForWhatADeadProcessLeft(t *testing.T) {
	withDevice(t, 2, func(c *Config, p []*fakePath) { withLedger(c, p); c.Replays = false }, func(r *rig) {
		c := beforeTheKill(r)
		c.read(0)
		synctest.Wait()
		if n, _ := r.paths[1].count(); n != 0 {
			t.Fatal("the read went out under a write that may still land")
		}
	})
}

func TestMoreDoubtsThanTheLedgerHoldsMakeItUnreadable(t *testing.T) {
	g, err := newLedger(nil)
	if err != nil {
		t.Fatal(err)
	}
	g.inherit(1, []string{"a"}, true)
	g.commit()
	for range maxRecords + 1 {
		g.note(&doubt{op: blk.Write, end: 512}, 0)
	}
	if _, ok := g.inherit(1, []string{"a"}, true); ok {
		t.Fatal("records were lost without a word")
	}
}

func TestALedgerFollowsAPathToItsNewPlace(t *testing.T) {
	g, _ := newLedger(nil)
	g.inherit(1, []string{"a", "b"}, true)
	g.note(&doubt{op: blk.Write, off: 512, end: 1024}, 1)
	g.commit()
	left, ok := g.inherit(1, []string{"b", "c"}, true)
	if !ok || len(left) != 1 || left[0].path != 0 || left[0].off != 512 || left[0].end != 1024 {
		t.Fatalf("%+v, %v", left, ok)
	}
}

func TestNothingOfAnUnreadableLedgerIsTakenForAWriteInFlight(t *testing.T) {
	mem := newMem()
	for i := range mem {
		mem[i] = 0xa5
	}
	binary.NativeEndian.PutUint64(mem[8*wordDepths:], 0)
	g, _ := newLedger(mem)
	if _, ok := g.inherit(1, []string{"a"}, true); ok {
		t.Fatal("read")
	}
	for i := range g.entries {
		if g.entries[i].overlaps(0, ^uint64(0)) {
			t.Fatalf("entry %d", i)
		}
	}
}

func FuzzALedgerOfAnyContentIsReadWithoutHarm(f *testing.F) {
	f.Add([]byte{}, uint16(0))
	f.Add([]byte{0x72, 0x65, 0x67, 0x64, 0x65, 0x6c, 0x70, 0x6d, 1}, uint16(3))
	f.Fuzz(func(t *testing.T, head []byte, depth uint16) {
		mem := newMem()
		copy(mem, head)
		binary.NativeEndian.PutUint64(mem[8*wordDepths:], uint64(depth)*7)
		g, err := newLedger(mem)
		if err != nil {
			t.Fatal(err)
		}
		g.inherit(5, []string{"a"}, true)
		g.commit()
		if left, ok := g.inherit(5, []string{"a"}, true); !ok || len(left) != 0 {
			t.Fatal("a reset ledger is not empty")
		}
	})
}

func TestEverythingInDoubtStaysEverythingAcrossASecondKill(t *testing.T) {
	g, _ := newLedger(nil)
	g.inherit(1, []string{"a"}, true)
	g.note(&doubt{op: blk.Write, end: ^uint64(0), state: told}, 0)
	g.commit()
	left, ok := g.inherit(1, []string{"a"}, true)
	if !ok || len(left) != 1 || left[0].end != ^uint64(0) || left[0].op != blk.Write {
		t.Fatalf("%+v", left)
	}
}

func TestAReplayWaitsForAnOverlapAnsweredBeforeTheKill(t *testing.T) {
	for _, order := range [][2]doubtState{{told, pending}, {pending, told}} {
		withDevice(t, 2, withLedger, func(r *rig) {
			r.paths[0].set(func() { r.paths[0].refuse = errCut })
			reg := &r.dev.doubt
			reg.mu.Lock()
			f := reg.newFence(r.dev.paths[0], 1)
			for i, st := range order {
				d := &doubt{op: blk.Write, end: testBlock, from: uint64(i), state: st, fence: f}
				if st == told {
					d.end = 2 * testBlock
				}
				reg.enter(d)
			}
			reg.mu.Unlock()
			r.restart()
			r.paths[0].set(func() { r.paths[0].refuse = errCut })
			synctest.Wait()
			c := newClient(t, r.dev)
			c.write(0, 1)
			synctest.Wait()
			if r.dev.doubt.active.Load() != 0 {
				a, _ := r.paths[0].count()
				b, _ := r.paths[1].count()
				if a+b != 0 {
					t.Fatalf("%v: the replay went out while an acknowledged write may land over it", order)
				}
			} else {
				t.Fatal("fenced too early for this test")
			}
		})
	}
}
