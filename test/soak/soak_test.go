package main

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestOneSeedIsOneScript(t *testing.T) {
	a, b := rand.New(rand.NewPCG(7, 0)), rand.New(rand.NewPCG(7, 0))
	for i := range 100 {
		if x, y := plan(a), plan(b); x != y {
			t.Fatalf("step %d: %+v and %+v", i, x, y)
		}
	}
}

func TestAScriptHasEveryKindOfFault(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	seen := map[kind]int{}
	for range 60 { // what fits into five minutes
		seen[plan(rng).kind]++
	}
	for _, w := range weights {
		if seen[w.kind] == 0 {
			t.Errorf("no %s among 60 steps", w.kind)
		}
	}
	if seen[reset]+seen[kill] < 20 {
		t.Errorf("only %d resets and kills", seen[reset]+seen[kill])
	}
}

func TestTheWeightsAreTheWhole(t *testing.T) {
	sum := 0
	for _, w := range weights {
		sum += w.weight
	}
	if sum != 100 {
		t.Fatalf("%d percent", sum)
	}
}

func TestAMissedGoalIsNamed(t *testing.T) {
	g := goals{lost: 50, blackHole: 5200, overlap: 16000}
	for name, c := range map[string]struct {
		e   event
		met bool
	}{
		"quick":             {event{Kind: reset, Stall: 20 * time.Millisecond, Sibling: 1.1}, true},
		"slow":              {event{Kind: reset, Stall: 60 * time.Millisecond}, false},
		"unfenced too long": {event{Kind: reset, Overlap: 17 * time.Second}, false},
		"starved sibling":   {event{Kind: reset, Sibling: 0.5}, false},
		"long black hole":   {event{Kind: blackHole, Stall: 6 * time.Second}, false},
		"black hole":        {event{Kind: blackHole, Stall: 5100 * time.Millisecond}, true},
	} {
		r := rows([]event{c.e}, g)
		if len(r) != 1 || r[0].Met == nil || *r[0].Met != c.met {
			t.Errorf("%s: got %+v, want met %v", name, r, c.met)
		}
	}
}

func TestTheTableShowsEachKindOnce(t *testing.T) {
	r := report{Rows: rows([]event{{Kind: control}, {Kind: kill}, {Kind: kill}}, goals{})}
	var b strings.Builder
	r.print(&b)
	if n := strings.Count(b.String(), "kill -9"); n != 2 { // one row, one goal
		t.Fatalf("kill -9 appears %d times in\n%s", n, b.String())
	}
}
