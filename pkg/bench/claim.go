package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// Claim is one judged figure.
//
// Ratio is the median of the paired ratios of two sides, or of one side's own
// figure when Baseline is empty. Lo and Hi are the smallest and the largest: of
// 7 rounds, they hold the true median with 98% confidence.
type Claim struct {
	Suite    string  `json:"suite"`
	Claim    string  `json:"claim"`
	Metric   string  `json:"metric"`
	Baseline string  `json:"baseline"`
	Ratio    float64 `json:"ratio"`
	Lo       float64 `json:"lo"`
	Hi       float64 `json:"hi"`
	Rounds   int     `json:"rounds"`
	// Goal is a floor, or with AtMost a ceiling; 0 without AtMost: no goal, the
	// figure is reported only.
	Goal   float64 `json:"goal"`
	AtMost bool    `json:"at_most,omitempty"`
	// EveryRound: Met asks for the goal in each round, and Control for nothing.
	EveryRound bool `json:"every_round,omitempty"`
	Met        bool `json:"met"`
	// Void: the same side measured against itself left 1 by more than 5%.
	Void bool `json:"void,omitempty"`
	// Control is the median of ours against ours; 0 for figures of one side.
	Control float64 `json:"control,omitempty"`
	// Ours and Theirs are the sides' medians, in the unit of Metric.
	Ours   float64 `json:"ours"`
	Theirs float64 `json:"theirs,omitempty"`
	// Seed is what the founding document reports for the same thing.
	Seed string `json:"seed,omitempty"`
}

// reported says that the claim has no goal.
func (c *Claim) reported() bool { return c.Goal == 0 && !c.AtMost }

// median of nothing is 0: JSON has no NaN.
func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	if n == 0 {
		return 0
	}
	return (v[(n-1)/2] + v[n/2]) / 2
}

// paired divides a by b round by round, so that what slowed a whole round
// cancels out. Equal figures are equal also when they are zero.
func paired(a, b []float64) []float64 {
	out := make([]float64, 0, len(a))
	for i := range a {
		switch {
		case b[i] != 0:
			out = append(out, a[i]/b[i])
		case a[i] == 0:
			out = append(out, 1)
		}
	}
	return out
}

// judge fills in the figures of a claim. No values: nothing could be divided.
func (c *Claim) judge(values []float64) {
	if len(values) == 0 {
		c.Void = true
		return
	}
	c.Ratio, c.Lo, c.Hi = median(values), slices.Min(values), slices.Max(values)
	least, most := c.Ratio, c.Ratio
	if c.EveryRound {
		least, most = c.Lo, c.Hi
	}
	switch {
	case c.reported():
		c.Met = true
	case c.AtMost:
		c.Met = most <= c.Goal
	default:
		c.Met = least >= c.Goal
	}
	c.Met = c.Met && !c.Void
}

func (c *Claim) goalText() string {
	switch {
	case c.reported():
		return "-"
	case c.AtMost:
		return fmt.Sprintf("<= %.4g", c.Goal)
	}
	return fmt.Sprintf(">= %.4g", c.Goal)
}

func (c *Claim) state() string {
	switch {
	case c.Void:
		return "VOID"
	case c.reported():
		return ""
	case c.Met:
		return "met"
	}
	return "NOT MET"
}

// Verdict is an error that names every claim with a goal that is void or not
// met, nil when there is none.
func Verdict(claims []Claim) error {
	var bad []string
	for _, c := range claims {
		if c.Met || c.reported() {
			continue
		}
		bad = append(bad, fmt.Sprintf("%s %s, %s: %.3g, goal %s, %s", c.Suite, c.Claim, c.Metric, c.Ratio, c.goalText(), c.state()))
	}
	if bad == nil {
		return nil
	}
	return &unmet{bad}
}

type unmet struct{ claims []string }

func (u *unmet) Error() string {
	s := fmt.Sprintf("%d claims are not met or void:", len(u.claims))
	for _, c := range u.claims {
		s += "\n  " + c
	}
	return s
}

// WriteJSON writes one object per line.
func WriteJSON(w io.Writer, claims []Claim) error {
	e := json.NewEncoder(w)
	for _, c := range claims {
		if err := e.Encode(c); err != nil {
			return err
		}
	}
	return nil
}

// WriteTable prints the claims for a person.
func WriteTable(w io.Writer, claims []Claim) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SUITE\tCLAIM\tMETRIC\tBASELINE\tOURS\tTHEIRS\tRATIO\tSPREAD\tGOAL\t\tA/A\tROUNDS\tSEED")
	for _, c := range claims {
		theirs, control := "-", "-"
		if c.Baseline != "" {
			theirs, control = figure(c.Theirs), fmt.Sprintf("%.3f", c.Control)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%.3g\t%.3g..%.3g\t%s\t%s\t%s\t%d\t%s\n",
			c.Suite, c.Claim, c.Metric, c.Baseline, figure(c.Ours), theirs,
			c.Ratio, c.Lo, c.Hi, c.goalText(), c.state(), control, c.Rounds, c.Seed)
	}
	return t.Flush()
}

// figure prints a value with as many digits as it is worth.
func figure(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2fM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.1fk", v/1e3)
	}
	return fmt.Sprintf("%.4g", v)
}
