package sim

import (
	"math/rand/v2"
	"testing"
)

func TestAWriteIsDeadOnceAnotherWasBegunAndEndedAfterIt(t *testing.T) {
	h := history{blocks: make([][]*rec, 1)}
	write := func(v uint64) *rec { h.tick(); return h.begin(0, v) }
	end := func(r *rec, ok bool) { h.tick(); h.finish(r, ok, false) }
	one := write(1)
	if !h.allowed(0, 0, h.tick()) || !h.allowed(0, 1, h.clock) || h.allowed(0, 9, h.clock) {
		t.Fatal("a write under way may be there or not; one that never was may not")
	}
	end(one, true)
	if h.allowed(0, 0, h.tick()) {
		t.Fatal("what was overwritten may be read")
	}
	two := write(2)
	early := h.tick()
	end(two, true)
	if !h.allowed(0, 1, early) || h.allowed(0, 1, h.tick()) {
		t.Fatal("a read that began before the write ended may see the old, a later one may not")
	}
	three := write(3)
	end(three, false)
	if !h.allowed(0, 2, h.tick()) || !h.allowed(0, 3, h.clock) {
		t.Fatal("a write that failed may be there or not")
	}
	h.saw(0, 3, h.tick())
	if h.allowed(0, 2, h.tick()) {
		t.Fatal("what was seen to be overwritten may be read again")
	}
	four, five := write(4), write(5)
	end(four, true)
	end(five, true)
	if !h.allowed(0, 4, h.tick()) || !h.allowed(0, 5, h.clock) {
		t.Fatal("of two writes at once either may be the last")
	}
	begin := h.tick()
	h.tick()
	if h.saw(0, 5, begin); h.allowed(0, 4, h.tick()) || !h.allowed(0, 5, h.clock) {
		t.Fatal("both have ended and the second was seen: the first may not come back")
	}
}

func TestALossOfPowerIsJudgedByWhatWasFlushed(t *testing.T) {
	h := history{blocks: make([][]*rec, 1)}
	write := func(v uint64, fua bool) { h.tick(); r := h.begin(0, v); h.tick(); h.finish(r, true, fua) }
	write(1, false)
	h.flushed(h.tick())
	write(2, false)
	if bad, claimed := h.lost(0, 1); bad != nil || claimed == 0 {
		t.Fatalf("write 2 was not flushed: %+v, %d", bad, claimed)
	}
	if !h.allowed(0, 1, h.tick()) || h.allowed(0, 2, h.clock) {
		t.Fatal("after the loss the block holds what was left")
	}
	write(3, true)
	if bad, _ := h.lost(0, 1); bad == nil {
		t.Fatal("write 3 was durable, and is lost without a word")
	}
}

// The slow twin forgets nothing.
func TestForgettingChangesNoVerdict(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	h, twin := history{blocks: make([][]*rec, 1)}, history{blocks: make([][]*rec, 1)}
	var open [][2]*rec
	for v := uint64(1); v < 3000; v++ {
		h.tick()
		twin.tick()
		open = append(open, [2]*rec{h.begin(0, v), twin.begin(0, v)})
		for len(open) > rng.IntN(4) {
			i := rng.IntN(len(open))
			ok, fua := rng.IntN(5) > 0, rng.IntN(3) == 0
			h.clock += 20
			h.finish(open[i][0], ok, fua)
			twin.clock += 20
			open[i][1].end, open[i][1].failed = twin.clock, !ok
			open = append(open[:i], open[i+1:]...)
		}
		back := uint64(rng.IntN(40))
		if start := h.clock - rng.IntN(500); h.allowed(0, max(v, back)-back, start) != twin.allowed(0, max(v, back)-back, start) {
			t.Fatalf("write %d at %d: %v, the twin says otherwise", v-back, start, h.allowed(0, v-back, start))
		}
	}
	if len(h.blocks[0]) == len(twin.blocks[0]) {
		t.Fatal("nothing was forgotten: the test tests nothing")
	}
}

func TestABlockTellsWhoseItIs(t *testing.T) {
	b := make([]byte, 2*512)
	fill(b, 512, 7, 42)
	if v, ok := number(b[512:], 8); v != 42 || !ok {
		t.Fatal(v, ok)
	}
	if _, ok := number(b[512:], 9); ok {
		t.Fatal("a block in the wrong place was taken")
	}
	b[1000]++
	if _, ok := number(b[512:], 8); ok {
		t.Fatal("a torn block was taken")
	}
	if scrawl(b); !scribbled(b) {
		t.Fatal("not scribbled")
	}
}
