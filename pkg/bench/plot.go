package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"gonum.org/v1/plot"
	plots "gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	_ "gonum.org/v1/plot/vg/vgsvg" // SVG files
)

// plotter draws one SVG per suite.
type plotter struct {
	dir   string
	quick bool
}

// plotWorkers are the numbers of workers on the horizontal axis.
var plotWorkers = []int{1, 2, 4, 8, 12}

const (
	plotSample = 100 * time.Millisecond
	plotRounds = 3
)

// overWorkers plots operations per second against the number of workers.
func (p *plotter) overWorkers(ctx context.Context, file, title string, sides func(workers int) []side) error {
	return p.over(ctx, axes{file: file, title: title, x: "workers", y: "million per second", at: plotWorkers, metric: opsPerSecond, unit: 1e6}, sides)
}

// axes say what is plotted: a metric, in unit, at some places.
type axes struct {
	file, title, x, y string
	at                []int
	metric            metric
	unit              float64
}

// over plots a line per side, the median of plotRounds interleaved rounds.
func (p *plotter) over(ctx context.Context, a axes, sides func(at int) []side) error {
	var lines []any
	series := map[string]*plots.XYs{}
	for _, n := range a.at {
		values := map[string][]float64{}
		all := sides(n)
		for range p.rounds() {
			for _, s := range all {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				runtime.GC()
				got, err := s.run(ctx, p.length())
				if err != nil {
					return fmt.Errorf("%s at %d: %w", s.name, n, err)
				}
				values[s.name] = append(values[s.name], got[a.metric])
			}
		}
		for _, s := range all {
			if series[s.name] == nil {
				series[s.name] = &plots.XYs{}
				lines = append(lines, s.name, series[s.name])
			}
			*series[s.name] = append(*series[s.name], plots.XY{X: float64(n), Y: median(values[s.name]) / a.unit})
		}
	}
	return p.save(a.file, a.title, a.x, a.y, lines)
}

// save writes an SVG; lines alternate names and points.
func (p *plotter) save(file, title, x, y string, lines []any) error {
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return fmt.Errorf("folder for plots: %w", err)
	}
	g := plot.New()
	g.Title.Text, g.X.Label.Text, g.Y.Label.Text = title, x, y
	g.Y.Min = 0
	g.Legend.Top = true
	if err := plotutil.AddLinePoints(g, lines...); err != nil {
		return fmt.Errorf("plot %s: %w", file, err)
	}
	if err := g.Save(18*vg.Centimeter, 12*vg.Centimeter, filepath.Join(p.dir, file)); err != nil {
		return fmt.Errorf("plot %s: %w", file, err)
	}
	return nil
}

func (p *plotter) rounds() int {
	if p.quick {
		return 1
	}
	return plotRounds
}

func (p *plotter) length() time.Duration {
	if p.quick {
		return quickSample
	}
	return plotSample
}
