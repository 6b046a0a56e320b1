package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	plots "gonum.org/v1/plot/plotter"
)

// Advice is the value of one StorageClass parameter for this volume.
type Advice struct {
	Parameter string `json:"parameter"`
	Value     string `json:"value"`
	Change    bool   `json:"change"` // it is not the default
	Reason    string `json:"reason"`
}

// figures makes a workload's figures: samples by value, the last the control.
func figures(p parameter, w volumeWorkload, samples [][]sample) (out []VolumeFigure) {
	base := column(samples[0], opsPerSecond)
	noise := noiseOf(paired(column(samples[len(samples)-1], opsPerSecond), base))
	for i, v := range p.values {
		got := column(samples[i], opsPerSecond)
		f := VolumeFigure{Parameter: p.name, Value: v, Workload: w.name, IOPS: median(got), Noise: noise}
		f.MBps = f.IOPS * float64(w.size) / 1e6
		if ratios := paired(got, base); len(ratios) > 0 {
			slices.Sort(ratios)
			f.Ratio, f.Lo, f.Hi = median(ratios), ratios[0], ratios[len(ratios)-1]
			f.sure = ratios[min(1, len(ratios)-1)]
		}
		out = append(out, f)
	}
	return out
}

// noiseOf is how far the same setting left itself in all rounds but the worst,
// at least leastNoise.
func noiseOf(control []float64) float64 {
	off := make([]float64, 0, len(control))
	for _, r := range control {
		off = append(off, math.Abs(r-1))
	}
	slices.Sort(off)
	switch n := len(off); n {
	case 0:
		return 1
	case 1:
		return max(leastNoise, off[0])
	default:
		return max(leastNoise, off[n-2])
	}
}

// advise recommends a value other than the default only if it is better with
// the workload the parameter is for by more than the noise, and in all rounds
// but one, and worse with none by more than the noise. Of those as good as the
// best it takes the first.
func advise(p parameter, all []VolumeFigure, rounds int) Advice {
	a := Advice{Parameter: p.name, Value: p.values[0]}
	if rounds < MinRounds {
		a.Reason = fmt.Sprintf("kept: %d rounds are too few to say, %d are needed", rounds, MinRounds)
		return a
	}
	var best *VolumeFigure
	most, noise := 0.0, 0.0
	for i := range all {
		f := &all[i]
		if f.Parameter != p.name || !strings.HasPrefix(f.Workload, p.judge) || f.Value == p.values[0] {
			continue
		}
		most, noise = max(most, f.Ratio), max(noise, f.Noise)
		if f.Ratio > 1+f.Noise && f.sure > 1 && harmless(f.Value, p.name, all) && (best == nil || f.Ratio > best.Ratio*(1+f.Noise)) {
			best = f
		}
	}
	if best == nil {
		a.Reason = fmt.Sprintf("kept: the best other value gives %.2fx with %s, the same value differs from itself by up to %.0f%%, or it harms another workload",
			most, p.judge, 100*noise)
		return a
	}
	a.Value, a.Change = best.Value, true
	a.Reason = fmt.Sprintf("%.2fx [%.2f..%.2f] of %s with %s, noise %.0f%%; no workload loses more than the noise",
		best.Ratio, best.Lo, best.Hi, p.values[0], best.Workload, 100*best.Noise)
	return a
}

func harmless(value, parameter string, all []VolumeFigure) bool {
	return !slices.ContainsFunc(all, func(f VolumeFigure) bool {
		return f.Parameter == parameter && f.Value == value && f.Ratio < 1-f.Noise
	})
}

// WriteVolumeTable prints a report for a person.
func WriteVolumeTable(out io.Writer, r *VolumeReport) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s: %d bytes, %d paths, %d rounds\n\n", r.Volume, r.Size, r.Paths, r.Rounds)
	fmt.Fprintln(t, "PARAMETER\tVALUE\tWORKLOAD\tIOPS\tMB/s\tTO DEFAULT\tSPREAD\tNOISE")
	for _, f := range r.Figures {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.1f\t%.3f\t%.2f..%.2f\t%.0f%%\n", f.Parameter, f.Value, f.Workload, figure(f.IOPS), f.MBps, f.Ratio, f.Lo, f.Hi, 100*f.Noise)
	}
	fmt.Fprintln(t, "\nStorageClass parameters:")
	for _, a := range r.Advice {
		mark := " "
		if a.Change {
			mark = "*"
		}
		fmt.Fprintf(t, "%s %s: %q\t# %s\n", mark, a.Parameter, a.Value, a.Reason)
	}
	return t.Flush()
}

// plot draws what each merge deadline gives, against the default.
func (s *sweep) plot() error {
	series := map[string]*plots.XYs{}
	var lines []any
	for _, f := range s.report.Figures {
		d, err := time.ParseDuration(f.Value)
		if err != nil || f.Parameter != volumeParameters[0].name {
			continue
		}
		if series[f.Workload] == nil {
			series[f.Workload] = &plots.XYs{}
			lines = append(lines, f.Workload, series[f.Workload])
		}
		*series[f.Workload] = append(*series[f.Workload], plots.XY{X: float64(d.Microseconds()), Y: f.Ratio})
	}
	p := &plotter{dir: s.Plot}
	return p.save("volume-merge-deadline.svg", s.report.Volume, "merge deadline, µs", "times the default's IOPS", lines)
}
