package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"text/tabwriter"
)

// ratio is a list of paired ratios: median, smallest, largest.
type ratio struct{ median, lo, hi float64 }

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	if n == 0 {
		return math.NaN()
	}
	return (v[(n-1)/2] + v[n/2]) / 2
}

// paired divides a by b round by round, so that what slowed a whole round
// cancels out.
func paired(a, b []sample, of func(sample) float64) ratio {
	var v []float64
	for i := range a {
		if d := of(b[i]); d > 0 {
			v = append(v, of(a[i])/d)
		}
	}
	if len(v) == 0 {
		return ratio{math.NaN(), math.NaN(), math.NaN()}
	}
	return ratio{median(v), slices.Min(v), slices.Max(v)}
}

func iopsOf(s sample) float64 { return s.iops }
func mbpsOf(s sample) float64 { return s.mbps }
func cpuOf(s sample) float64  { return s.cpu }

// perCPUOf is what iopsOf would be if nothing else ran on the CPU: on one CPU
// that is never idle, the rate is one over the CPU time of the whole path.
// Neighbours disturb it far less.
func perCPUOf(s sample) float64 { return 1e6 / s.path }

func middle(s []sample, of func(sample) float64) float64 {
	var v []float64
	for _, x := range s {
		v = append(v, of(x))
	}
	return median(v)
}

// control is ours against ours: the last list against the first.
func control(samples [][]sample, of func(sample) float64) float64 {
	return paired(samples[len(samples)-1], samples[0], of).median
}

func holds(control float64) bool { return math.Abs(control-1) <= controlSpan }

// claim is one figure of the result. Ratio is ours over the baseline's.
type claim struct {
	Suite    string  `json:"suite"`
	Claim    string  `json:"claim"`
	Metric   string  `json:"metric"`
	Baseline string  `json:"baseline"`
	Ratio    float64 `json:"ratio"`
	Lo       float64 `json:"lo"`
	Hi       float64 `json:"hi"`
	Rounds   int     `json:"rounds"`
	Goal     float64 `json:"goal"`
	// AtMost: Goal is a ceiling.
	AtMost bool `json:"at_most,omitempty"`
	Met    bool `json:"met"`
	Void   bool `json:"void,omitempty"`
	// Ours and Theirs are medians: IOPS or MB/s; CPU of the server per I/O, µs.
	Ours      float64 `json:"ours"`
	Theirs    float64 `json:"theirs"`
	OursCPU   float64 `json:"ours_cpu_us"`
	TheirsCPU float64 `json:"theirs_cpu_us"`
	CPURatio  float64 `json:"cpu_ratio"`
	Control   float64 `json:"control"`
}

// judge makes the claims of one workload: ours, peers[0], against each other
// peer that has a goal, by the clock and by CPU time.
func judge(suite string, peers []peer, w workload, samples [][]sample) []claim {
	metric, of := "IOPS", iopsOf
	if w.bandwidth {
		metric, of = "MB/s", mbpsOf
	}
	var out []claim
	for i := 1; i < len(peers); i++ {
		goal, ok := w.goals[peers[i].name]
		if !ok {
			continue
		}
		c := claim{
			Suite: suite, Claim: w.name, Baseline: peers[i].name, Rounds: len(samples[0]), Goal: goal,
			OursCPU: middle(samples[0], cpuOf), TheirsCPU: middle(samples[i], cpuOf),
			CPURatio: paired(samples[0], samples[i], cpuOf).median,
		}
		c.compare(metric, samples[0], samples[i], control(samples, of), of)
		out = append(out, c)
		c.compare("IO per CPU second", samples[0], samples[i], control(samples, perCPUOf), perCPUOf)
		out = append(out, c)
		if w.cost > 0 {
			c.Goal, c.AtMost = w.cost, true
			c.compare("CPU us per IO", samples[0], samples[i], control(samples, cpuOf), cpuOf)
			out = append(out, c)
		}
	}
	return out
}

func (c *claim) compare(metric string, ours, theirs []sample, control float64, of func(sample) float64) {
	r := paired(ours, theirs, of)
	c.Metric, c.Ratio, c.Lo, c.Hi = metric, r.median, r.lo, r.hi
	c.Ours, c.Theirs = middle(ours, of), middle(theirs, of)
	c.Control, c.Void = control, !holds(control)
	c.Met = !c.Void && (c.AtMost && r.median <= c.Goal || !c.AtMost && r.median >= c.Goal)
}

func (c *claim) line() string {
	return fmt.Sprintf("%.2fx [%.2f..%.2f] of %s (%.4g against %.4g %s; CPU per I/O %.1f against %.1f us; control %.3f)",
		c.Ratio, c.Lo, c.Hi, c.Baseline, c.Ours, c.Theirs, c.Metric, c.OursCPU, c.TheirsCPU, c.Control)
}

func (c *claim) bound() string {
	if c.AtMost {
		return "<="
	}
	return ">="
}

func (c *claim) state() string {
	switch {
	case c.Void:
		return "void"
	case c.Met:
		return "met"
	}
	return "NOT MET"
}

// table prints all claims.
func (b *bench) table(to io.Writer) {
	t := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "suite\tworkload\tbaseline\tmetric\tours\ttheirs\tratio\tspread\tgoal\t\tCPU us/IO\ttheirs\tratio\tcontrol\trounds")
	for _, c := range b.claims {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.5g\t%.5g\t%.2f\t%.2f..%.2f\t%s%.2f\t%s\t%.1f\t%.1f\t%.2f\t%.3f\t%d\n",
			c.Suite, c.Claim, c.Baseline, c.Metric, c.Ours, c.Theirs, c.Ratio, c.Lo, c.Hi, c.bound(), c.Goal, c.state(),
			c.OursCPU, c.TheirsCPU, c.CPURatio, c.Control, c.Rounds)
	}
	_ = t.Flush()
	mode := "everything on CPU " + b.cpu
	if b.batch {
		mode += ", SCHED_BATCH"
	}
	if b.cpu == "" {
		mode = "not pinned: for information, not for claims"
	}
	fmt.Fprintf(to, `%d rounds of %.1f s, %s, %s.
ratio: median of paired ratios; spread: smallest and largest of them
IO per CPU second: by the CPU time of client, server and target together
control: ours against ours; a claim is void when it leaves 1.00 +-%.2f
`, b.config.rounds, b.seconds, mode, b.network(), controlSpan)
}

// writeJSON writes one object per line.
func (b *bench) writeJSON() error {
	f, err := os.Create(b.json)
	if err != nil {
		return err
	}
	e := json.NewEncoder(f)
	for _, c := range b.claims {
		if err := e.Encode(c); err != nil {
			_ = f.Close()
			return fmt.Errorf("%s: %w", b.json, err)
		}
	}
	return f.Close()
}
