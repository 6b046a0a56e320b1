package datapath

import (
	"testing"
	"testing/synctest"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

func TestAUnitAloneIsSharedByThePaths(t *testing.T) {
	withDevice(t, 2, func(c *Config, _ []*fakePath) { c.MinPaths = 2 }, func(r *rig) {
		c := newClient(t, r.dev)
		all := writes(c, 0, 64, 1)
		c.batch(all...)
		r.wantCommands(0, [2]int{0, 32})
		r.wantCommands(1, [2]int{32, 32})
		r.paths[1].answer(0, good)
		r.wantStatus(c, blk.OK, all[32:]...)
		r.paths[0].answer(0, good)
		r.wantStatus(c, blk.OK, all[:32]...)
		for i := range 64 {
			if got := r.disk.blocks[i]; got != uint64(1+i) {
				t.Fatalf("block %d holds %d", i, got)
			}
		}
	})
}

func TestASmallUnitIsNotShared(t *testing.T) {
	withDevice(t, 2, func(c *Config, _ []*fakePath) { c.MinPaths = 2 }, func(r *rig) {
		c := newClient(t, r.dev)
		c.batch(writes(c, 0, 40, 1)...)
		r.wantCommands(0, [2]int{0, 40})
	})
}

func TestAUnitIsCutWithoutLosingARequest(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 64} {
		for part := uint32(testBlock); part < 70*testBlock; part += testBlock {
			slots := make([]slot, n)
			for i := range slots {
				slots[i].req = &blk.Request{Len: testBlock, Buf: make([]byte, testBlock)}
				if i > 0 {
					slots[0].join(&slots[i])
				}
			}
			seen := 0
			for s := &slots[0]; s != nil; {
				next := s.cut(part)
				members := 0
				for m := s; m != nil; m = m.more {
					if m != &slots[seen] {
						t.Fatalf("%d requests by %d bytes: out of order", n, part)
					}
					seen++
					members++
				}
				if s.size() != uint32(members)*testBlock || members > 1 && len(s.vec) != members {
					t.Fatalf("%d requests by %d bytes: a part of %d has %d bytes, %d pieces", n, part, members, s.size(), len(s.vec))
				}
				s = next
			}
			if seen != n {
				t.Fatalf("%d of %d requests left", seen, n)
			}
		}
	}
}

func TestARequestDoesNotJoinAUnitThatWasCut(t *testing.T) {
	withDevice(t, 2, func(c *Config, ps []*fakePath) {
		c.MinPaths = 2
		ps[0].disk.blocks = make([]uint64, 128)
		for _, p := range ps {
			p.room, p.facts.Limits.Size = 1, 128*testBlock
		}
	}, func(r *rig) {
		c := newClient(t, r.dev)
		first := []*blk.Request{c.write(100, 1), c.write(110, 1)} // both paths are full
		synctest.Wait()
		var all []*blk.Request
		for i := range 4 {
			all = append(all, c.prepare(blk.Write, i*16, 16, uint64(1+i), 0))
		}
		c.batch(all...)
		synctest.Wait()
		all = append(all, c.send(blk.Write, 64, 16, 5, 0)) // continues the last
		synctest.Wait()
		for r.paths[0].answer(0, good) || r.paths[1].answer(0, good) {
			synctest.Wait()
		}
		r.wantStatus(c, blk.OK, append(first, all...)...)
		for i := range 80 {
			if got := r.disk.blocks[i]; got != uint64(1+i/16) {
				t.Fatalf("block %d holds %d, want %d", i, got, 1+i/16)
			}
		}
	})
}
