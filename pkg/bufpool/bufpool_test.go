package bufpool

import (
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"
)

func newArena(t testing.TB, size int) *Arena {
	t.Helper()
	a, err := New(size)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestBuffersArePageAlignedAndAsLongAsAsked(t *testing.T) {
	a := newArena(t, 1<<20)
	for _, n := range []int{1, 512, 4096, 4097, 65536, 100000} {
		b := a.Alloc(n)
		if len(b) != n || uintptr(unsafe.Pointer(&b[0]))%MinBuf != 0 {
			t.Fatalf("asked %d, got %d bytes at %p", n, len(b), &b[0])
		}
		a.Free(b)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAFreedBufferIsReusedFirst(t *testing.T) {
	a := newArena(t, 1<<20)
	b := a.Alloc(4096)
	a.Free(b)
	if c := a.Alloc(4096); &c[0] != &b[0] {
		t.Fatal("a cold buffer was handed out")
	}
}

func TestAnEmptyArenaRefusesAndServesAgainAfterAFree(t *testing.T) {
	a := newArena(t, 64<<10)
	all := a.Alloc(64 << 10)
	if a.Alloc(1) != nil {
		t.Fatal("an empty arena handed out a buffer")
	}
	if a.Alloc(128<<10) != nil || a.Alloc(0) != nil {
		t.Fatal("an impossible size was handed out")
	}
	a.Free(all)
	if a.Alloc(64<<10) == nil {
		t.Fatal("the freed buffer did not come back whole")
	}
}

func TestClosingWithABufferOutIsRefused(t *testing.T) {
	a := newArena(t, 64<<10)
	b := a.Alloc(1)
	if a.Close() == nil {
		t.Fatal("closed")
	}
	a.Free(b)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
}

// The slow twin is a map of what is out, byte ranges checked pairwise.
func TestRandomUseNeverOverlapsAndAlwaysJoinsAgain(t *testing.T) {
	a := newArena(t, 1<<20)
	rng := rand.New(rand.NewPCG(5, 5))
	out := map[uintptr][]byte{}
	for range 20000 {
		if rng.IntN(2) == 0 {
			b := a.Alloc(1 + rng.IntN(1<<rng.IntN(19)))
			if b == nil {
				continue
			}
			lo := uintptr(unsafe.Pointer(&b[0]))
			for q, o := range out {
				if lo < q+uintptr(cap(o)) && q < lo+uintptr(cap(b)) {
					t.Fatal("two buffers overlap")
				}
			}
			out[lo] = b
			continue
		}
		for k, b := range out {
			a.Free(b)
			delete(out, k)
			break
		}
	}
	for _, b := range out {
		a.Free(b)
	}
	if a.Alloc(1<<20) == nil {
		t.Fatal("the arena did not join to one block")
	}
}

func TestBuffersFreedByOtherGoroutinesComeBack(t *testing.T) {
	a := newArena(t, 1<<20)
	ch := make(chan []byte, 64)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for b := range ch {
				b[0] = 1
				a.Free(b)
			}
		})
	}
	for n := 0; n < 20000; {
		if b := a.Alloc(4096 << (n % 4)); b != nil {
			ch <- b
			n++
		}
	}
	close(ch)
	wg.Wait()
	if a.Used() != 0 || a.Alloc(1<<20) == nil {
		t.Fatalf("%d bytes are missing", a.Used())
	}
}

func TestAFreeOfAForeignBufferIsCaught(t *testing.T) {
	a := newArena(t, 64<<10)
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	a.Free(make([]byte, 4096))
}

func TestAllocAndFreeAllocateNothing(t *testing.T) {
	a := newArena(t, 1<<20)
	if n := testing.AllocsPerRun(1000, func() { a.Free(a.Alloc(4096)) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
