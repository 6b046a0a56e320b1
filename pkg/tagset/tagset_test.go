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
			s := New(c.depth, c.homes)
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
	s := New(depth, users)
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

func TestPuttingATagTwiceIsCaught(t *testing.T) {
	s := New(4, 1)
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
			s := New(depth, 12)
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
