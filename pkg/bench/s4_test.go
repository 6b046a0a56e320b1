package bench

import (
	"context"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

func TestABlockInTheWrongPlaceIsFound(t *testing.T) {
	a := newArray(price{}, nil)
	first, second := make([]byte, requestSize), make([]byte, requestSize)
	stamp(first, 1<<20)
	stamp(second, 1<<20+requestSize)
	c := blk.Command{Op: blk.Write, Off: 1 << 20, Len: 2 * requestSize, Vec: [][]byte{first, second}}
	if a.check(&c); a.bad.Load() != 0 {
		t.Fatal("a unit in order is refused")
	}
	c.Vec = [][]byte{second, first}
	if a.check(&c); a.bad.Load() != 2 {
		t.Fatalf("%d blocks found, two are exchanged", a.bad.Load())
	}
}

func TestANameWithAStarIsTheBestOfItsSides(t *testing.T) {
	e := experiment{name: "e", sides: []side{fixed("off", 10), fixed("deadline 0", 15), fixed("deadline 1ms", 30), fixed("other", 99)},
		claims: []claim{{metric: opsPerSecond, ours: "deadline *", base: "off", goal: 3}}}
	r := &runner{Options: Options{Rounds: 7}}
	if err := r.experiment(t.Context(), "S", e); err != nil {
		t.Fatal(err)
	}
	if c := r.claims[0]; !c.Met || c.Ratio != 3 || c.Claim != "e: deadline 1ms" {
		t.Fatalf("%+v", c)
	}
}

func TestNothingIsMeasuredAgainWhenTheTimeIsNeededForTheRest(t *testing.T) {
	for limit, tries := range map[time.Duration]int{0: maxTries, time.Hour: maxTries, time.Nanosecond: 1} {
		runs := 0
		odd := side{name: "odd", run: func(context.Context, time.Duration) (sample, error) {
			runs++
			return sample{opsPerSecond: float64(runs)}, nil // never what it was before
		}}
		e := experiment{name: "e", sides: []side{odd, fixed("base", 1)},
			claims: []claim{{metric: opsPerSecond, base: "base", goal: 1}}}
		r := &runner{Options: Options{Rounds: 1, Limit: limit}, began: time.Now()}
		if err := r.experiment(t.Context(), "S", e); err != nil {
			t.Fatal(err)
		}
		if runs != 2*tries || !r.claims[0].Void {
			t.Errorf("limit %v: %d runs, %+v", limit, runs, r.claims[0])
		}
	}
}

func TestAnUnknownChildIsRefused(t *testing.T) {
	if Child("nobody", nil, nil) == nil {
		t.Fatal("accepted")
	}
}
