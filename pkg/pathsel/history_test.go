package pathsel

import "testing"

func TestTheAverageFollowsTheServiceTime(t *testing.T) {
	var h History
	now := int64(1000)
	h.Began(now)
	for range 500 {
		now += 4000
		h.Finished(now, 4)
	}
	if got := h.Service(); got < 990 || got > 1010 {
		t.Fatalf("average %d ns, want about 1000", got)
	}
	for range 500 {
		now += 8000
		h.Finished(now, 1)
	}
	if got := h.Service(); got < 7900 || got > 8100 {
		t.Fatalf("average %d ns, want about 8000", got)
	}
}

func TestIdleTimeIsNoServiceTime(t *testing.T) {
	var h History
	h.Began(0)
	h.Finished(1000, 1)
	h.Began(1_000_000)
	h.Finished(1_001_000, 1)
	if got := h.Service(); got != 1000 {
		t.Fatalf("average %d ns, want 1000", got)
	}
}

func TestAnAnswerFromThePastChangesNothing(t *testing.T) {
	var h History
	h.Began(100)
	h.Finished(200, 1)
	h.Began(500) // by a lane whose clock was read later
	h.Finished(450, 1)
	if got := h.Service(); got != 100 {
		t.Fatalf("average %d ns, want 100", got)
	}
}

// world runs commands of equal size over paths that serve one after the other,
// each in its own time, and counts who got them.
func serve(sel Selector, times []int64, depth, total int) []int {
	type path struct {
		h      History
		queue  int
		doneAt int64
	}
	paths := make([]path, len(times))
	got := make([]int, len(times))
	var s State
	now := int64(1)
	for sent, inflight := 0, 0; sent < total; {
		s.Begin(len(times))
		s.SetNow(now)
		for i := range paths {
			if paths[i].queue == 0 {
				paths[i].h.Began(now)
			}
			s.Set(i, loadOf(uint64(paths[i].queue), 4096*uint64(paths[i].queue)))
			s.SetHistory(i, &paths[i].h)
		}
		for ; inflight < depth && sent < total; inflight++ {
			i := sel.Pick(&s, 4096, 0)
			if paths[i].queue++; paths[i].queue == 1 {
				paths[i].doneAt = now + times[i]
			}
			got[i]++
			sent++
		}
		next := int64(1 << 62)
		for i := range paths {
			if paths[i].queue > 0 {
				next = min(next, paths[i].doneAt)
			}
		}
		now = next
		for i := range paths {
			if p := &paths[i]; p.queue > 0 && p.doneAt == now {
				p.queue--
				inflight--
				p.h.Finished(now, 1)
				p.doneAt = now + times[i]
			}
		}
	}
	return got
}

func TestHistoricalServiceTimeKeepsASlowPathAtOneProbeAtATime(t *testing.T) {
	got := serve(HistoricalServiceTime{}, []int64{100_000, 5_000_000}, 16, 20000)
	if got[1] > 20000/40 {
		t.Fatalf("the path 50 times slower got %d of 20000 commands", got[1])
	}
	if got[1] == 0 {
		t.Fatal("the slow path was never tried again")
	}
}

func TestHistoricalServiceTimeSharesInProportionToSpeed(t *testing.T) {
	got := serve(HistoricalServiceTime{}, []int64{100_000, 200_000}, 32, 30000)
	if share := float64(got[0]) / 30000; share < 0.60 || share > 0.73 {
		t.Fatalf("the path twice as fast got %.2f of the commands, want about 0.67", share)
	}
}

func TestEqualPathsGetEqualShares(t *testing.T) {
	for _, sel := range []Selector{RoundRobin{}, QueueLength{}, ServiceTime{}, HistoricalServiceTime{}} {
		got := serve(sel, []int64{100_000, 100_000, 100_000, 100_000}, 16, 40000)
		for i, n := range got {
			if n < 9500 || n > 10500 {
				t.Errorf("%s: path %d got %d of 40000: %v", sel.Name(), i, n, got)
			}
		}
	}
}

func TestHistoricalServiceTimeForgivesAPathThatBecameFast(t *testing.T) {
	times := []int64{100_000, 5_000_000}
	var s State
	var h [2]History
	// Both have their histories; then path 1 is idle and stale.
	h[0].Began(0)
	h[1].Began(0)
	h[0].Finished(times[0], 1)
	h[1].Finished(times[1], 1)
	now := 2*times[1] + times[1] + 1
	h[0].Finished(now, 1)
	s.Begin(2)
	s.SetNow(now)
	for i := range h {
		s.Set(i, loadOf(uint64(1-i), 0))
		s.SetHistory(i, &h[i])
	}
	if i := (HistoricalServiceTime{}).Pick(&s, 512, 0); i != 1 {
		t.Fatal("the stale idle path was not probed")
	}
	if i := (HistoricalServiceTime{}).Pick(&s, 512, 0); i != 0 {
		t.Fatal("the stale path got a second command before its answer")
	}
}
