package tagset

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

// slow is the obvious twin: a set under a mutex.
type slow struct {
	mu   sync.Mutex
	held map[int]bool
	max  int
}

func (s *slow) take(tag int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[tag] || len(s.held) == s.max {
		return false
	}
	s.held[tag] = true
	return true
}

func (s *slow) give(tag int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, tag)
}

func TestEveryTagIsHandedOutOnceAndThenNoMore(t *testing.T) {
	for _, c := range []struct{ depth, homes int }{{1, 1}, {1, 8}, {3, 2}, {64, 1}, {64, 12}, {100, 3}, {2048, 12}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			s := newSet(c.depth, c.homes)
			seen := map[int]bool{}
			for range c.depth {
				tag := s.Get(len(seen))
				if tag < 0 || tag >= s.Bound() || seen[tag] {
					t.Fatalf("tag %d after %d", tag, len(seen))
				}
				seen[tag] = true
			}
			if tag := s.Get(0); tag != -1 || s.Free() != 0 {
				t.Fatalf("got %d from an empty set, %d free", tag, s.Free())
			}
			for tag := range seen {
				s.Put(tag)
			}
			if s.Free() != c.depth {
				t.Fatalf("%d free after all were put back", s.Free())
			}
		})
	}
}

func TestConcurrentUsersAgreeWithTheSlowTwin(t *testing.T) {
	const depth, users = 64, 12
	s := newSet(depth, users)
	twin := &slow{held: map[int]bool{}, max: depth}
	var bad atomic.Int64
	var wg sync.WaitGroup
	for u := range users {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(u), 3))
			var mine []int
			for range 20000 {
				if len(mine) < 8 && rng.IntN(2) == 0 {
					if tag := s.Get(u); tag >= 0 {
						if !twin.take(tag) {
							bad.Add(1)
						}
						mine = append(mine, tag)
					}
				} else if n := len(mine); n > 0 {
					twin.give(mine[n-1])
					s.Put(mine[n-1])
					mine = mine[:n-1]
				}
			}
			for _, tag := range mine {
				twin.give(tag)
				s.Put(tag)
			}
		})
	}
	wg.Wait()
	if bad.Load() != 0 || s.Free() != depth {
		t.Fatalf("%d tags were handed out twice, %d of %d free at the end", bad.Load(), s.Free(), depth)
	}
}

func TestConcurrentBatchesAgreeWithTheSlowTwin(t *testing.T) {
	const depth, users = 64, 12
	s := newSet(depth, users)
	twin := &slow{held: map[int]bool{}, max: depth}
	var bad atomic.Int64
	var wg sync.WaitGroup
	for u := range users {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(u), 5))
			mine := make([]int32, 0, 16)
			for range 10000 {
				if room := cap(mine) - len(mine); room > 0 && rng.IntN(2) == 0 {
					n := len(mine)
					mine = mine[:n+s.GetBatch(u, mine[n:n+1+rng.IntN(room)])]
					for _, tag := range mine[n:] {
						if !twin.take(int(tag)) {
							bad.Add(1)
						}
					}
					continue
				}
				n := rng.IntN(len(mine) + 1)
				for _, tag := range mine[n:] {
					twin.give(int(tag))
				}
				s.PutBatch(mine[n:])
				mine = mine[:n]
			}
			for _, tag := range mine {
				twin.give(int(tag))
			}
			s.PutBatch(mine)
		})
	}
	wg.Wait()
	if bad.Load() != 0 || s.Free() != depth {
		t.Fatalf("%d tags were handed out twice, %d of %d free at the end", bad.Load(), s.Free(), depth)
	}
}

func TestABatchTakesWhatOneWordHasAndStealsWhenHomeIsEmpty(t *testing.T) {
	s := newSet(20, 4)
	tags := make([]int32, 8)
	for home, want := range []int{5, 5, 5} {
		if n := s.GetBatch(home, tags); n != want {
			t.Fatalf("home %d gave %d tags, want %d", home, n, want)
		}
	}
	if n := s.GetBatch(0, tags[:3]); n != 3 || tags[0]>>6 != 3 {
		t.Fatalf("stole %d tags, first %d, want 3 of the last word", n, tags[0])
	}
	if s.Free() != 2 {
		t.Fatalf("%d free", s.Free())
	}
}

func TestOutOfTagsTheCallerReapsItsOwn(t *testing.T) {
	s := newSet(2, 1)
	tags := make([]int32, 2)
	done := make([]int32, s.GetBatch(0, tags))
	copy(done, tags)
	reap := func() bool {
		if len(done) == 0 {
			return false
		}
		s.PutBatch(done[:1])
		done = done[1:]
		return true
	}
	for want := range 3 {
		if n := s.GetOrReap(0, tags, reap); (n == 1) != (want < 2) {
			t.Fatalf("got %d tags with %d left to reap", n, len(done))
		}
	}
}

func TestPuttingATagOfABatchTwiceIsCaught(t *testing.T) {
	for _, twice := range [][]int32{{0, 0}, {0, 64, 0}} {
		s := newSet(4, 4)
		tags := make([]int32, 1)
		s.GetBatch(0, tags)
		s.GetBatch(1, tags)
		func() {
			defer func() {
				if recover() == nil {
					t.Fatalf("no panic for %v", twice)
				}
			}()
			s.PutBatch(twice)
		}()
	}
}

func TestPuttingATagTwiceIsCaught(t *testing.T) {
	s := newSet(4, 1)
	tag := s.Get(0)
	s.Put(tag)
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	s.Put(tag)
}

func BenchmarkContendedGetPut(b *testing.B) {
	for _, depth := range []int{64, 2048} {
		b.Run(fmt.Sprint("depth=", depth), func(b *testing.B) {
			s := newSet(depth, 12)
			var home atomic.Int64
			b.SetParallelism(6)
			b.RunParallel(func(pb *testing.PB) {
				h := int(home.Add(1))
				for pb.Next() {
					if tag := s.Get(h); tag >= 0 {
						s.Put(tag)
					}
				}
			})
		})
	}
}
