package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/pathsel"
)

// Figures are nobody's business here: the machine may be slow and busy. What
// is asserted is that every side does its work and checks it.
func TestEverySideOfEverySeedDoesItsWork(t *testing.T) {
	for _, name := range SuiteNames() {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			claims, err := Seeds(t.Context(), Options{Suites: []string{name}, Quick: true, Plot: dir})
			if err != nil {
				t.Fatal(err)
			}
			if len(claims) == 0 {
				t.Fatal("no claims")
			}
			for _, c := range claims {
				if c.Suite != name || c.Claim == "" || c.Metric == "" || c.Rounds != 1 {
					t.Errorf("claim %+v", c)
				}
			}
			if err := WriteJSON(new(bytes.Buffer), claims); err != nil {
				t.Errorf("as JSON: %v", err)
			}
			svg, _ := filepath.Glob(filepath.Join(dir, "*.svg"))
			if len(svg) != 1 {
				t.Fatalf("plots: %v", svg)
			}
			if b, err := os.ReadFile(svg[0]); err != nil || !bytes.Contains(b, []byte("</svg>")) {
				t.Errorf("%s is no SVG: %v", svg[0], err)
			}
		})
	}
}

func TestAClaimIsOneJSONObjectOnOneLine(t *testing.T) {
	var b bytes.Buffer
	if err := WriteJSON(&b, []Claim{{Suite: "S1", Claim: "c", Metric: "op/s", Baseline: "b", Ratio: 2, Lo: 1, Hi: 3, Rounds: 7, Goal: 1.5, Met: true}, {}}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines", len(lines))
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &got); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"suite", "claim", "metric", "baseline", "ratio", "lo", "hi", "rounds", "goal", "met"} {
		if _, ok := got[k]; !ok {
			t.Errorf("%q is missing in %s", k, lines[0])
		}
	}
}

// fixed is a side that measures the given values in turn.
func fixed(name string, values ...float64) side {
	n := 0
	return side{name: name, run: func(context.Context, time.Duration) (sample, error) {
		n++
		return sample{opsPerSecond: values[(n-1)%len(values)]}, nil
	}}
}

func TestAClaimIsMetByTheMedianOfPairedRatios(t *testing.T) {
	for _, c := range []struct {
		ours, base []float64
		goal       float64
		atMost     bool
		met, void  bool
	}{
		{[]float64{30}, []float64{10}, 3, false, true, false},
		{[]float64{29}, []float64{10}, 3, false, false, false},
		{[]float64{2}, []float64{10}, 0.2, true, true, false},
		{[]float64{3}, []float64{10}, 0.2, true, false, false},
		{[]float64{30, 40}, []float64{10}, 3, false, false, true}, // ours differs from itself
	} {
		e := experiment{name: "e", sides: []side{fixed("ours", c.ours...), fixed("base", c.base...)},
			claims: []claim{{metric: opsPerSecond, base: "base", goal: c.goal, atMost: c.atMost}}}
		r := &runner{Options: Options{Rounds: 7}}
		if err := r.experiment(t.Context(), "S", e); err != nil {
			t.Fatal(err)
		}
		if got := r.claims[0]; len(r.claims) != 1 || got.Met != c.met || got.Void != c.void || got.Rounds != 7 {
			t.Errorf("%v over %v, goal %v: %+v", c.ours, c.base, c.goal, got)
		}
		if err := Verdict(r.claims); (err == nil) != c.met {
			t.Errorf("verdict %v", err)
		}
	}
}

func TestTheOrderOfTheSidesIsReversedEveryOtherRound(t *testing.T) {
	var order string
	mark := func(name string) side {
		return side{name: name, run: func(context.Context, time.Duration) (sample, error) {
			order += name
			return sample{opsPerSecond: 1}, nil
		}}
	}
	r := &runner{Options: Options{Rounds: 2}}
	if _, err := r.rounds(t.Context(), experiment{sides: []side{mark("a"), mark("b")}}); err != nil {
		t.Fatal(err)
	}
	if order != "abaaba" {
		t.Fatalf("order %s", order)
	}
}

func TestAClaimWithoutABaselineIsTheFigureItself(t *testing.T) {
	e := experiment{name: "e", sides: []side{fixed("ours", 0.04)},
		claims: []claim{{metric: opsPerSecond, goal: 0.05, atMost: true}, {metric: opsPerSecond}}}
	r := &runner{Options: Options{Rounds: 3}}
	if err := r.experiment(t.Context(), "S", e); err != nil {
		t.Fatal(err)
	}
	if c := r.claims[0]; !c.Met || c.Ratio != 0.04 || c.Void {
		t.Fatalf("%+v", c)
	}
	if err := Verdict(r.claims); err != nil {
		t.Fatalf("a figure without a goal counts: %v", err)
	}
}

func TestAGoalOfEveryRoundNeedsNoControl(t *testing.T) {
	for worst, met := range map[float64]bool{0.19: true, 0.21: false} {
		e := experiment{name: "e", sides: []side{fixed("ours", 0.01, worst), fixed("base", 1)},
			claims: []claim{{metric: opsPerSecond, base: "base", goal: 0.2, atMost: true, everyRound: true}}}
		r := &runner{Options: Options{Rounds: 7}}
		if err := r.experiment(t.Context(), "S", e); err != nil {
			t.Fatal(err)
		}
		if c := r.claims[0]; c.Met != met || c.Void {
			t.Errorf("worst %v: %+v", worst, c)
		}
	}
}

func TestUnknownSuitesAndRoundsAreRefused(t *testing.T) {
	for _, o := range []Options{{Suites: []string{"S9"}}, {Rounds: -1}, {Rounds: MaxRounds + 1}} {
		if _, err := Seeds(t.Context(), o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

// doubling gives one tag out twice, in one batch.
type doubling struct {
	allocator
	spoiled atomic.Bool
}

func (d *doubling) take(w int, tags []int32) int {
	if d.spoiled.CompareAndSwap(false, true) {
		d.allocator.take(w, tags[:1])
		tags[1] = tags[0]
		return 2
	}
	return d.allocator.take(w, tags)
}

func TestATagGivenOutTwiceFailsTheRun(t *testing.T) {
	s := tagSide("doubling", func(f *fakeDevice, depth, submitters int) allocator {
		return &doubling{allocator: newMutexCond(f, depth, submitters)}
	}, 4, 1, 2)
	if _, err := s.run(t.Context(), quickSample); !errors.Is(err, errCheck) {
		t.Fatalf("got %v", err)
	}
}

// twice answers the first request twice.
type twice struct {
	to      submitter
	spoiled bool
}

func (w *twice) Submit(r *blk.Request) {
	if !w.spoiled {
		w.spoiled = true
		r.Status = blk.OK
		c := r.Owner.(*client)
		c.flying[r.Slot] = false
		r.Owner.Complete(r)
		return
	}
	w.to.Submit(r)
}

// immediate answers everything at once.
type immediate struct{}

func (immediate) Submit(r *blk.Request) {
	for r != nil {
		next := r.Next
		r.Next = nil
		r.Status = blk.OK
		r.Owner.Complete(r)
		r = next
	}
}

func TestAnAnswerThatNobodyWaitsForFailsTheRun(t *testing.T) {
	c := newClient(0, 1, true, make([]byte, requestSize))
	w := &twice{to: immediate{}}
	c.submit(w, &c.reqs[0])
	if err := c.verify(); !errors.Is(err, errCheck) {
		t.Fatalf("got %v", err)
	}
}

func TestARequestThatIsNeverAnsweredFailsTheRun(t *testing.T) {
	c := newClient(0, 2, false, make([]byte, requestSize))
	c.flying[1] = true
	if err := c.verify(); !errors.Is(err, errCheck) {
		t.Fatalf("got %v", err)
	}
}

func TestQuantilesAreExactBelowTheTop(t *testing.T) {
	h, o := new(histogram), new(histogram)
	for i := range int64(1000) {
		h.add(i + 1)
	}
	o.add(1 << 40)
	h.merge(o)
	if p := h.quantile(0.5); p != 500 {
		t.Errorf("median %v", p)
	}
	if p := h.quantile(1); p != float64(len(h.counts)-1) {
		t.Errorf("largest %v", p)
	}
}

func TestDeviationIsTheLargestDistanceFromAnEqualShare(t *testing.T) {
	if d := deviation([]int64{50, 50}); d != 0 {
		t.Errorf("equal shares: %v", d)
	}
	if d := deviation([]int64{75, 25}); d != 0.5 {
		t.Errorf("3 to 1: %v", d)
	}
}

// The locked maps are baselines: they must pick as the snapshot does.
func TestTheLockedMapsPickALeastLoadedPath(t *testing.T) {
	for _, kind := range []lockKind{rwLocked, mutexLocked, rwTextbook, mutexTextbook} {
		for _, sel := range []pathsel.Selector{pathsel.RoundRobin{}, pathsel.QueueLength{}, pathsel.ServiceTime{}} {
			m := newLockedMap(kind, sel)
			var got [s1Paths]int
			for range 10 * s1Paths {
				i, ok := m.Map(requestSize)
				if !ok {
					t.Fatal("no path")
				}
				got[i]++
			}
			for i, n := range got {
				if n != 10 {
					t.Errorf("kind %d, %s: path %d got %d of %d", kind, sel.Name(), i, n, 10*s1Paths)
				}
				for range n {
					m.Done(i, requestSize)
				}
				if c, b := m.inflight(i); c != 0 || b != 0 {
					t.Errorf("kind %d: %d commands, %d bytes left", kind, c, b)
				}
			}
		}
	}
}
