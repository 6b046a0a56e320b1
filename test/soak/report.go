package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// event is what one step did to the answer times.
type event struct {
	Kind kind   `json:"kind"`
	Path string `json:"path"`
	// At is the time since the start of the load.
	At time.Duration `json:"at_ns"`
	// Stall is the longest answer time among the requests in flight at the event
	// that overlap no in-doubt write; Inflight is their number.
	Stall    time.Duration `json:"stall_ns"`
	Inflight int           `json:"inflight"`
	// After is the longest answer time of such requests from the event until both
	// paths were back.
	After time.Duration `json:"after_ns"`
	// Overlap is the longest answer time of the writes that do overlap one.
	Overlap time.Duration `json:"overlap_ns"`
	// Sibling is the throughput of the other path after the event, as a share of
	// what it was before; 0 when it was not measured.
	Sibling float64 `json:"sibling"`
}

// row sums up the events of one kind.
type row struct {
	Kind           kind    `json:"kind"`
	Events         int     `json:"events"`
	StallMedian    float64 `json:"stall_median_ms"`
	StallMax       float64 `json:"stall_max_ms"`
	AfterMax       float64 `json:"after_max_ms"`
	OverlapMedian  float64 `json:"overlap_median_ms"`
	OverlapMax     float64 `json:"overlap_max_ms"`
	SiblingMedian  float64 `json:"sibling_median"`
	SiblingLowest  float64 `json:"sibling_lowest"`
	Goal           string  `json:"goal,omitempty"`
	Met            *bool   `json:"met,omitempty"`
	siblingPresent bool
}

// report is the whole run, as --json writes it.
type report struct {
	Suite     string         `json:"suite"`
	Transport string         `json:"transport"`
	Seed      uint64         `json:"seed"`
	Duration  time.Duration  `json:"duration_ns"`
	Rows      []row          `json:"rows"`
	Events    []event        `json:"events"`
	Load      map[string]any `json:"load"`
	Failure   string         `json:"failure,omitempty"`
}

func median[T cmp.Ordered](v []T) T {
	var zero T
	if len(v) == 0 {
		return zero
	}
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// rows groups the events; limits are the goals of the kinds that have one.
func rows(events []event, limits goals) []row {
	var out []row
	for _, k := range []kind{control, reset, kill, blackHole, delay, both} {
		var stalls, overlaps []time.Duration
		var siblings []float64
		r := row{Kind: k}
		for _, e := range events {
			if e.Kind != k {
				continue
			}
			stalls, overlaps = append(stalls, e.Stall), append(overlaps, e.Overlap)
			r.AfterMax = max(r.AfterMax, ms(e.After))
			if e.Sibling > 0 {
				siblings = append(siblings, e.Sibling)
			}
		}
		if len(stalls) == 0 {
			continue
		}
		r.Events = len(stalls)
		r.StallMedian, r.StallMax = ms(median(stalls)), ms(slices.Max(stalls))
		r.OverlapMedian, r.OverlapMax = ms(median(overlaps)), ms(slices.Max(overlaps))
		if r.siblingPresent = len(siblings) > 0; r.siblingPresent {
			r.SiblingMedian, r.SiblingLowest = median(siblings), slices.Min(siblings)
		}
		limits.judge(&r)
		out = append(out, r)
	}
	return out
}

// goals are the bounds of the product, in milliseconds.
type goals struct{ lost, blackHole, overlap float64 }

func (g goals) judge(r *row) {
	met := true
	switch r.Kind {
	case reset, kill:
		r.Goal = fmt.Sprintf("median <= %.0f ms, overlapping <= %.0f ms", g.lost, g.overlap)
		met = r.StallMedian <= g.lost && r.OverlapMax <= g.overlap
	case blackHole:
		r.Goal = fmt.Sprintf("<= %.0f ms, overlapping <= %.0f ms", g.blackHole, g.blackHole+g.overlap)
		met = r.StallMax <= g.blackHole && r.OverlapMax <= g.blackHole+g.overlap
	case control, delay, both:
		return
	}
	if r.siblingPresent {
		r.Goal += ", sibling >= 80%"
		met = met && r.SiblingMedian >= 0.8
	}
	r.Met = &met
}

func (r *report) print(w io.Writer) {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "event\tn\tstall median\tstall max\tuntil healed\toverlapping median\tmax\tsibling median\tlowest\tgoal met\t")
	for _, x := range r.Rows {
		sib, low, met := "-", "-", "-"
		if x.siblingPresent {
			sib, low = fmt.Sprintf("%.0f%%", 100*x.SiblingMedian), fmt.Sprintf("%.0f%%", 100*x.SiblingLowest)
		}
		if x.Met != nil {
			met = map[bool]string{true: "yes", false: "NO"}[*x.Met]
		}
		fmt.Fprintf(t, "%s\t%d\t%.1f ms\t%.1f ms\t%.1f ms\t%.1f ms\t%.1f ms\t%s\t%s\t%s\t\n", x.Kind, x.Events,
			x.StallMedian, x.StallMax, x.AfterMax, x.OverlapMedian, x.OverlapMax, sib, low, met)
	}
	_ = t.Flush()
	fmt.Fprintln(w, `
stall         longest answer time of the requests in flight at the event that overlap no in-doubt write
until healed  the same for all such requests until both paths were back
overlapping   longest answer time of writes to a block whose last write was on the lost path: they wait for the fence
sibling       throughput of the other path in the second after the event, against the second before`)
	for _, x := range r.Rows {
		if x.Goal != "" {
			fmt.Fprintf(w, "goal          %s: %s\n", x.Kind, x.Goal)
		}
	}
}

func (r *report) save(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
