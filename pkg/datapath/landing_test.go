package datapath

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/merge"
)

// sower writes streams of contiguous requests through paths that are short of
// room, fail and are lost. Each block is written once, and read once it was.
type sower struct {
	r     *rig
	c     *client
	rng   *rand.Rand
	ends  []int // of each stream: what is written so far, blocks
	whole []*blk.Request
}

const sownBlocks = 4096

func (s *sower) free() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return len(s.c.free) > 0
}

func (s *sower) batch() {
	n := len(s.ends)
	k := s.rng.IntN(n)
	var all []*blk.Request
	for range 1 + s.rng.IntN(8) {
		if s.rng.IntN(4) == 0 {
			k = s.rng.IntN(n)
		}
		long := 1 + s.rng.IntN(16)
		if s.ends[k]+long > (k+1)*sownBlocks/n || !s.free() {
			break
		}
		all = append(all, s.c.prepare(blk.Write, s.ends[k], long, uint64(s.ends[k]+1), 0))
		s.ends[k] += long
	}
	if s.rng.IntN(8) == 0 && s.free() {
		all = append(all, s.c.prepare(blk.Flush, 0, 0, 0, 0))
	}
	if len(all) > 0 {
		s.whole = append(s.whole, all...)
		s.c.batch(all...)
	}
}

func (s *sower) step() {
	p := s.r.paths[s.rng.IntN(len(s.r.paths))]
	switch s.rng.IntN(12) {
	case 0, 1, 2, 3:
		s.batch()
	case 4, 5, 6, 7:
		p.answer(s.rng.IntN(2), good)
	case 8:
		class := []blk.PathStatus{blk.Retry, blk.Busy, blk.RetryLater}[s.rng.IntN(3)]
		p.answer(0, blk.Verdict{Class: class, Status: blk.IOError})
	case 9:
		p.set(func() { p.room = 1 + s.rng.IntN(3) })
	case 10:
		if s.rng.IntN(6) == 0 {
			p.lose(errCut, true)
		} else {
			p.late(0)
		}
	case 11:
		time.Sleep(time.Duration(s.rng.IntN(int(40 * time.Millisecond))))
	}
	synctest.Wait()
}

// reap answers everything.
func (s *sower) reap() {
	for range 200 {
		for _, p := range s.r.paths {
			for p.answer(0, good) {
				synctest.Wait()
			}
		}
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
	}
	s.r.wantStatus(s.c, blk.OK, s.whole...)
	for k, end := range s.ends {
		for b := k * sownBlocks / len(s.ends); b < end; b++ {
			if s.r.disk.blocks[b] == 0 || int(s.r.disk.blocks[b]) > b+1 || b-int(s.r.disk.blocks[b]) > 15 {
				s.r.Fatalf("block %d holds %d", b, s.r.disk.blocks[b])
			}
		}
	}
	for k, end := range s.ends {
		if at := k * sownBlocks / len(s.ends); end < (k+1)*sownBlocks/len(s.ends) && s.r.disk.blocks[end] != 0 {
			s.r.Fatalf("stream at %d: block %d was never written and holds %d", at, end, s.r.disk.blocks[end])
		}
	}
}

// withSower runs f with a device with random paths, holds and room.
func withSower(t *testing.T, seed uint64, change func(*Config), f func(s *sower)) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 7))
	paths := 1 + rng.IntN(3)
	hold := []time.Duration{0, 0, 50 * time.Microsecond, 20 * time.Millisecond}[rng.IntN(4)]
	withDevice(t, paths, func(c *Config, ps []*fakePath) {
		c.MinPaths, c.MergeDeadline = paths, hold
		change(c)
		ps[0].disk.blocks = make([]uint64, sownBlocks)
		for _, p := range ps {
			p.facts.Limits.Size = sownBlocks * testBlock
			p.facts.Limits.MaxTransfer = []uint32{4 << 10, 32 << 10, 256 << 10}[rng.IntN(3)]
			p.room = 1 + rng.IntN(3)
			p.facts.Proof = rng.IntN(2) == 0
		}
	}, func(r *rig) {
		s := &sower{r: r, c: newClient(t, r.dev), rng: rng}
		for k := range 3 {
			s.ends = append(s.ends, k*sownBlocks/3)
		}
		f(s)
	})
	if t.Failed() {
		t.Fatalf("seed %d", seed)
	}
}

func TestEveryRequestOfAStreamIsAnsweredHoweverItEnds(t *testing.T) {
	for seed := range uint64(60) {
		withSower(t, seed, func(c *Config) {
			c.MultiWriter = seed%5 == 4
			if seed%3 == 0 {
				c.NoPathTimeout = 100 * time.Millisecond
			}
		}, func(s *sower) {
			for range s.rng.IntN(100) {
				s.step()
			}
			switch seed % 3 {
			case 0: // all paths go and stay away
				for _, p := range s.r.paths {
					p.set(func() { p.refuse = errCut })
					p.lose(errCut, true)
				}
				s.batch()
			case 1: // the client goes
				s.batch()
				s.c.lane.Close()
				for range 50 {
					for _, p := range s.r.paths {
						for p.answer(0, good) {
							synctest.Wait()
						}
					}
					time.Sleep(time.Second)
				}
			case 2: // the device ends before its time
				s.batch()
				ctx, cancel := context.WithTimeout(s.r.Context(), time.Duration(s.rng.IntN(int(time.Second))))
				_ = s.r.dev.Close(ctx)
				cancel()
			}
			time.Sleep(20 * time.Second)
			synctest.Wait()
			for i, q := range s.whole {
				if !s.c.answered(q) {
					s.r.Fatalf("seed %d: request %d of %d, %v at block %d, is not answered", seed, i, len(s.whole), q.Op, q.Off/testBlock)
				}
			}
		})
	}
}

func TestEveryWriteOfAStreamLandsWhereItBelongs(t *testing.T) {
	for seed := range uint64(60) {
		withSower(t, seed, func(c *Config) { c.MultiWriter = seed%5 == 4 }, func(s *sower) {
			for range 300 {
				s.step()
			}
			s.reap()
			for _, l := range s.r.dev.table.Load().best() {
				if n, b := l.inflight(); n != 0 || b != 0 {
					s.r.Fatalf("seed %d: %d commands of %d bytes are counted in flight", seed, n, b)
				}
			}
			for i := range s.c.lane.entries {
				if s.c.lane.entries[i].state.Load() != 0 {
					s.r.Fatalf("seed %d: entry %d is left published", seed, i)
				}
			}
			for i := range merge.Streams {
				if s.c.lane.plug.Busy(int8(i)) {
					s.r.Fatalf("seed %d: stream %d is counted in flight", seed, i)
				}
			}
		})
	}
}
