package mpsc

import (
	"math/rand/v2"
	"sync"
	"testing"
)

type item struct {
	producer, n int
	next        *item
}

func (i *item) NextPtr() **item { return &i.next }

func TestDrainGivesOneProducersElementsInOrder(t *testing.T) {
	var q Queue[item, *item]
	for i := range 5 {
		if empty := q.Push(&item{n: i}); empty != (i == 0) {
			t.Fatalf("push %d says empty=%v", i, empty)
		}
	}
	for i, e := 0, q.Drain(); i < 5; i, e = i+1, e.next {
		if e.n != i {
			t.Fatalf("place %d holds %d", i, e.n)
		}
	}
	if q.Drain() != nil || !q.Empty() {
		t.Fatal("not empty after the drain")
	}
}

func TestAChainStaysTogetherAndInOrder(t *testing.T) {
	var q Queue[item, *item]
	c := &item{n: 3}
	b := &item{n: 2, next: c}
	a := &item{n: 1, next: b}
	q.Push(&item{n: 0})
	q.PushChain(a, c)
	q.Push(&item{n: 4})
	e := q.Drain()
	for i := range 5 {
		if e.n != i {
			t.Fatalf("place %d holds %d", i, e.n)
		}
		e = e.next
	}
	if e != nil {
		t.Fatal("the list does not end")
	}
}

// The slow twin is a slice per producer: whatever the interleaving, each
// producer's elements arrive complete and in its order.
func TestManyProducersLoseNothingAndKeepTheirOrder(t *testing.T) {
	const producers, each = 8, 5000
	var q Queue[item, *item]
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(p), 1))
			for n := 0; n < each; {
				k := min(1+rng.IntN(4), each-n)
				chain := make([]item, k)
				for i := range chain {
					chain[i] = item{producer: p, n: n + i}
					if i > 0 {
						chain[i-1].next = &chain[i]
					}
				}
				q.PushChain(&chain[0], &chain[k-1])
				n += k
			}
		})
	}
	var next [producers]int
	for got := 0; got < producers*each; {
		for e := q.Drain(); e != nil; e = e.next {
			if next[e.producer] != e.n {
				t.Fatalf("producer %d: got %d, want %d", e.producer, e.n, next[e.producer])
			}
			next[e.producer]++
			got++
		}
	}
	wg.Wait()
}

func BenchmarkContendedPushDrain(b *testing.B) {
	var q Queue[item, *item]
	b.RunParallel(func(pb *testing.PB) {
		e := &item{}
		for pb.Next() {
			q.Push(e)
			for q.Drain() == nil && !q.Empty() {
				continue
			}
			e = &item{}
		}
	})
}
