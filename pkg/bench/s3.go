package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/pathsel"
)

// S3: the whole datapath over paths in memory. Clients write 4 KiB, each with a
// number of requests outstanding; the in-flight table of I3 is kept. One
// operation is one request answered.

const (
	s3Lanes = 12
	// s3Capped is the rate of a capped path, commands per second.
	s3Capped = 40000
)

// loadFor sizes the clients so that they want more than the tags of one path.
func loadFor(lanes, depth int, single bool) load {
	l := load{lanes: lanes, depth: min(256, max(16, depth/8)), single: single}
	if lanes == 1 {
		l.depth = min(256, depth)
	}
	return l
}

// pathsOf makes n paths, capped to rate commands per second each, or not at 0.
func pathsOf(n, depth, lanes int, rate float64) []*nullPath {
	out := make([]*nullPath, n)
	for i := range out {
		out[i] = newNullPath(i, depth, lanes)
		if rate > 0 {
			out[i].reader = newPump(rate)
		}
	}
	return out
}

// datapathSide measures the datapath with the default selector.
func datapathSide(name string, paths, depth int, l load, rate float64) side {
	return selectorSide(name, nil, paths, depth, l, rate)
}

// selectorSide is datapathSide with a selector.
func selectorSide(name string, sel pathsel.Selector, paths, depth int, l load, rate float64) side {
	return side{name: name, run: func(ctx context.Context, d time.Duration) (s sample, err error) {
		ps := pathsOf(paths, depth, l.lanes, rate)
		dev, err := openDevice(ctx, sel, ps)
		if err != nil {
			return nil, err
		}
		lanes := make([]*datapath.Lane, l.lanes)
		s, err = l.run(ctx, d, func(i int) (submitter, error) {
			var err error
			lanes[i], err = dev.OpenLane(l.depth)
			return lanes[i], err
		})
		for _, lane := range lanes {
			if lane != nil {
				lane.Close()
			}
		}
		if err := errors.Join(err, closeDevice(dev, ps)); err != nil {
			return nil, err
		}
		counts := make([]int64, 0, len(ps))
		for _, p := range ps {
			counts = append(counts, p.answered())
		}
		s[shareError] = deviation(counts)
		return s, nil
	}}
}

func s3Experiments() []experiment {
	var out []experiment
	for _, lanes := range []int{s3Lanes, 1} {
		for _, single := range []bool{false, true} {
			for _, depth := range []int{64, 2048} {
				out = append(out, againstDispatcher(lanes, depth, single))
			}
		}
	}
	for _, lanes := range []int{s3Lanes, 1} {
		for _, depth := range []int{64, 2048} {
			out = append(out, twoPaths(lanes, depth))
		}
	}
	return append(out, cappedPaths())
}

func againstDispatcher(lanes, depth int, single bool) experiment {
	l := loadFor(lanes, depth, single)
	e := experiment{
		name:  fmt.Sprintf("null paths, %d lanes, depth %d", lanes, depth),
		turns: manyTurns,
		sides: []side{
			datapathSide("datapath", 2, depth, l, 0),
			lockedBuildSide("locked build", 2, depth, l, false),
			dispatcherSide("bare dispatcher", dispatchQueued, depth, l),
			dispatcherSide("bare dispatcher, no path goroutines", dispatchInline, depth, l),
		},
	}
	if single {
		e.name += ", unbatched"
	}
	ratio := claim{metric: opsPerSecond, base: "locked build"}
	switches := claim{metric: contextSwitches, base: "locked build"}
	main := lanes == s3Lanes && !single
	if main {
		ratio.goal = 3
		switches.goal, switches.atMost, switches.everyRound = 0.2, true, true
	}
	e.claims = []claim{ratio, {metric: opsPerCPU, base: "locked build"}, switches,
		{metric: opsPerSecond, base: "bare dispatcher"},
		{metric: contextSwitches, base: "bare dispatcher"},
		{metric: opsPerSecond, base: "bare dispatcher, no path goroutines"}}
	if !main {
		e.length = reportedSample
	} else {
		e.sides = append(e.sides, lockedBuildSide("textbook locked build", 2, depth, l, true),
			dispatcherSide("textbook bare dispatcher", dispatchTextbook, depth, l))
		e.claims = append(e.claims, claim{name: "the baseline is no straw man", metric: opsPerSecond,
			ours: "locked build", base: "textbook locked build", goal: 0.95},
			claim{metric: opsPerSecond, base: "textbook bare dispatcher"})
	}
	return e
}

func twoPaths(lanes, depth int) experiment {
	l := loadFor(lanes, depth, false)
	e := experiment{
		name:  fmt.Sprintf("two null paths over one, %d lanes, depth %d", lanes, depth),
		turns: manyTurns,
		sides: []side{
			datapathSide("two paths", 2, depth, l, 0),
			datapathSide("one path", 1, depth, l, 0),
			selectorSide("two paths, each lane on one", pathsel.IOAffinity{}, 2, depth, l, 0),
			lockedBuildSide("locked build, two", 2, depth, l, false),
			lockedBuildSide("locked build, one", 1, depth, l, false),
		},
		claims: []claim{
			{metric: opsPerSecond, base: "one path", seed: "0.64, then 0.92"},
			{name: "two null paths over one, no batch cut in two, depth " + fmt.Sprint(depth), metric: opsPerSecond, ours: "two paths, each lane on one", base: "one path"},
			{metric: opsPerCPU, base: "one path"},
			{name: "the locked build's two over one", metric: opsPerSecond, ours: "locked build, two", base: "locked build, one"},
		},
	}
	if lanes == s3Lanes {
		e.claims[0].goal = 1.0
	} else {
		e.length = reportedSample
	}
	return e
}

func cappedPaths() experiment {
	l := loadFor(s3Lanes, 2048, false)
	return experiment{
		name:   fmt.Sprintf("two capped paths over one, %d lanes", s3Lanes),
		length: longSample,
		sides: []side{
			datapathSide("two paths", 2, 2048, l, s3Capped),
			datapathSide("one path", 1, 2048, l, s3Capped),
		},
		claims: []claim{
			{metric: opsPerSecond, base: "one path", goal: 1.8},
			{name: "shares of two capped paths within 1 s", metric: shareError, goal: 0.05, atMost: true},
		},
	}
}

func s3Plot(ctx context.Context, p *plotter) error {
	return p.overWorkers(ctx, "s3-null-path.svg", "S3: 4 KiB writes over null paths, depth 64", func(n int) []side {
		l := loadFor(s3Lanes, 64, false)
		l.lanes = n
		return []side{
			datapathSide("two paths", 2, 64, l, 0),
			datapathSide("one path", 1, 64, l, 0),
			lockedBuildSide("locked build, two paths", 2, 64, l, false),
			lockedBuildSide("locked build, one path", 1, 64, l, false),
		}
	})
}
