package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
)

const s4Off = "merge off"

func s4Experiments() []experiment {
	out := []experiment{
		mergeGains(1, true, 1.8), mergeGains(4, true, 1.8), mergeGains(1, false, 0),
		mergeRandom(), mergeAlone(), mergeTooLong(),
	}
	for _, cost := range s4Costs {
		out = append(out, mergeAuto(cost))
	}
	return out
}

func s4Price(cost time.Duration) price { return price{command: cost, perKiB: s4PerKiB} }

func fixedName(d time.Duration) string {
	if d == 0 {
		return "deadline 0"
	}
	return fmt.Sprintf("deadline %v", d)
}

// fixedSides are the deadlines, as sides named "deadline ...".
func fixedSides(w writing, deadlines ...time.Duration) (out []side) {
	for _, d := range deadlines {
		out = append(out, writingSide(fixedName(d), d, w))
	}
	return out
}

// mergeGains: one lane is what kernel NBD gives us. Submitted together, writes
// merge without any deadline as soon as they are answered together once.
func mergeGains(lanes int, single bool, goal float64) experiment {
	w := writing{lanes: lanes, writers: s4Writers, depth: s4Depth, single: single, price: s4Price(s4Cost)}
	return experiment{
		name: w.String(),
		sides: append([]side{writingSide(s4Off, datapath.MergeOff, w)},
			fixedSides(w, 0, 10*time.Microsecond, 100*time.Microsecond, 500*time.Microsecond, time.Millisecond)...),
		claims: []claim{
			{metric: megabytes, ours: "deadline *", base: s4Off, goal: goal, seed: "1.80"},
			{metric: megabytes, ours: "deadline 0", base: s4Off},
			{metric: megabytes, ours: "deadline 10µs", base: s4Off, seed: "1.80"},
			{metric: unitSize, ours: "deadline *", base: s4Off},
			{metric: meanLatency, ours: "deadline 10µs", base: s4Off},
		},
	}
}

func mergeRandom() experiment {
	w := writing{lanes: 1, writers: s4Writers, depth: s4Depth, single: true, random: true, price: s4Price(s4Cost)}
	return experiment{
		name:  "no harm to random: " + w.String(),
		sides: append([]side{writingSide(s4Off, datapath.MergeOff, w)}, fixedSides(w, 100*time.Microsecond)...),
		claims: []claim{
			{metric: megabytes, ours: "deadline 100µs", base: s4Off, goal: 0.95},
			{name: "no random request is ever held", metric: heldRequests, ours: "deadline 100µs", goal: 0, atMost: true, everyRound: true},
		},
	}
}

func mergeAlone() experiment {
	w := writing{lanes: 1, writers: 1, depth: 1, single: true, price: s4Price(s4Cost)}
	return experiment{
		name:  "no harm to one at a time: " + w.String(),
		sides: append([]side{writingSide(s4Off, datapath.MergeOff, w)}, fixedSides(w, 100*time.Microsecond)...),
		claims: []claim{
			{metric: megabytes, ours: "deadline 100µs", base: s4Off, goal: 0.95},
			{name: "the only request of a stream is never held", metric: heldRequests, ours: "deadline 100µs", goal: 0, atMost: true, everyRound: true},
		},
	}
}

// mergeTooLong is the negative control: an array that is far away, not busy.
// Whoever waits for the answers before gains nothing.
func mergeTooLong() experiment {
	w := writing{lanes: 1, writers: 1, depth: s4Depth, single: true, price: price{command: time.Microsecond, delay: time.Millisecond}}
	return experiment{
		name:  "100 ms must hurt: " + w.String() + ", 1 ms away",
		sides: append([]side{writingSide(s4Off, datapath.MergeOff, w)}, fixedSides(w, 100*time.Millisecond)...),
		claims: []claim{
			{metric: meanLatency, ours: "deadline 100ms", base: s4Off, goal: 1.3},
		},
	}
}

func mergeAuto(cost time.Duration) experiment {
	w := writing{lanes: 1, writers: s4Writers, depth: s4Depth, single: true, price: s4Price(cost)}
	return experiment{
		name: fmt.Sprintf("auto over the best fixed deadline, %v per command", cost),
		sides: append(append([]side{writingSide(s4Off, datapath.MergeOff, w)}, fixedSides(w, s4Deadlines...)...),
			writingSide("auto", datapath.MergeAuto, w)),
		claims: []claim{
			{metric: megabytes, ours: "auto", base: "deadline *", goal: 0.95},
			{metric: megabytes, ours: "auto", base: s4Off},
			{name: fmt.Sprintf("auto keeps still, %v per command", cost), metric: settleSecs, ours: "auto",
				goal: learnTime.Seconds(), atMost: true, everyRound: true},
			{name: fmt.Sprintf("what auto chose, %v per command", cost), metric: chosen, ours: "auto"},
		},
	}
}

func s4Plot(ctx context.Context, p *plotter) error {
	a := axes{file: "s4-merge-deadline.svg", title: "S4: 16 sequential 4 KiB writers, one lane", x: "merge deadline, µs", y: "MB/s",
		at: []int{0, 10, 50, 100, 200, 500, 1000, 2000, 5000}, metric: megabytes, unit: 1}
	return p.over(ctx, a, func(us int) (out []side) {
		for _, cost := range s4Costs {
			w := writing{lanes: 1, writers: s4Writers, depth: s4Depth, single: true, price: s4Price(cost)}
			out = append(out, writingSide(fmt.Sprintf("%v per command", cost), time.Duration(us)*time.Microsecond, w),
				writingSide(fmt.Sprintf("%v per command, off", cost), datapath.MergeOff, w))
		}
		return out
	})
}
