package bufpool

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// receiver drives an Elastic as a connection's reader does: received bytes are
// consumed in part, the rest is held for the next receive.
type receiver struct {
	e    Elastic
	buf  []byte
	r, w int
}

// receive takes as much of stream as there is room for, and returns the rest.
func (x *receiver) receive(stream []byte) []byte {
	x.buf = x.e.Next(x.buf[x.r:x.w])
	x.r, x.w = 0, x.w-x.r
	n := copy(x.buf[x.w:], stream)
	x.w += n
	x.e.Filled(x.w)
	return stream[n:]
}

// The slow twin is one large slice of all that came.
func TestWhatIsHeldSurvivesEveryChangeOfSize(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var x receiver
		var in, out []byte
		sizes := map[int]bool{}
		for range 400 {
			n := rng.IntN(100)
			if rng.IntN(40) == 0 {
				n = rng.IntN(2 * ElasticLarge)
			}
			part := make([]byte, n)
			for i := range part {
				part[i] = byte(rng.Uint32())
			}
			in = append(in, part...)
			for len(part) > 0 {
				part = x.receive(part)
				sizes[len(x.buf)] = true
				take := rng.IntN(x.w - x.r + 1)
				if x.w == len(x.buf) {
					take = x.w - x.r - min(x.w-x.r, rng.IntN(100))
				}
				out = append(out, x.buf[x.r:x.r+take]...)
				x.r += take
			}
		}
		out = append(out, x.buf[x.r:x.w]...)
		x.e.Close()
		if !bytes.Equal(in, out) || len(sizes) != 2 {
			t.Fatalf("seed %d: %d bytes in, %d out, sizes %v", seed, len(in), len(out), sizes)
		}
	}
}

func TestABufferIsSmallUntilMuchComesAndAgainWhenLittleDoes(t *testing.T) {
	var x receiver
	get := func(n int) int {
		x.receive(make([]byte, n))
		x.r = x.w
		return len(x.buf)
	}
	if got := get(4144); got != ElasticSmall {
		t.Fatalf("%d bytes for one small read", got)
	}
	get(ElasticLarge)
	if got := get(ElasticLarge); got != ElasticLarge {
		t.Fatalf("%d bytes while much comes", got)
	}
	for i := range 2 * elasticCalm {
		if got := get(48); got == ElasticSmall {
			if i < elasticCalm/2 {
				t.Fatalf("small again after %d receives", i)
			}
			return
		}
	}
	t.Fatal("large for ever")
}

func TestASteadyElasticAllocatesNothing(t *testing.T) {
	for _, n := range []int{48, ElasticLarge} {
		var x receiver
		part := make([]byte, n)
		round := func() { x.receive(part); x.r = x.w }
		round()
		round()
		if got := testing.AllocsPerRun(1000, round); got != 0 {
			t.Errorf("%v allocations per receive of %d bytes", got, n)
		}
	}
}

func TestATableIsTouchedOnlyWhereBlocksBegin(t *testing.T) {
	a, err := New(64 << 20)
	if err != nil {
		t.Fatal(err)
	}
	b := a.Alloc(4096)
	touched := 0
	for i := range a.pages {
		if a.pages[i] != (pageInfo{}) {
			touched++
		}
	}
	a.Free(b)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if touched > 16 {
		t.Fatalf("%d entries for one small buffer", touched)
	}
}
