package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"
)

// metric names one figure of a sample, unit included.
type metric string

// sample is what one run of a side measured.
type sample map[metric]float64

// side is one way to do the work of an experiment. run does it for about d and
// returns an error when a check failed.
type side struct {
	name string
	run  func(ctx context.Context, d time.Duration) (sample, error)
	// extra is what a run takes besides d.
	extra time.Duration
}

// claim compares one figure of two sides; base "": the figure of ours itself. A
// name that ends in * is the side with the best median of those that begin so.
type claim struct {
	name   string // "" is the experiment's
	metric metric
	ours   string // "" is the first side
	base   string
	goal   float64
	atMost bool
	// everyRound: each round has to meet the goal, and A/A does not count: for
	// events so rare that the same side differs from itself by half.
	everyRound bool
	seed       string
}

// experiment is sides that do the same work, ours first.
type experiment struct {
	name   string
	sides  []side
	claims []claim
	length time.Duration // of one round; 0 is shortSample, or turnedSample with turns
	// turns: a round is so many runs of each side in turn, each for its part of
	// length, and their mean is the round's figure; 0 is 1. The machine changes
	// within a second, and who got the better half must not matter.
	turns int
	// around, if set, is what goes on while it is measured, until end is called.
	around func() (end func(), err error)
}

// suite is one founding idea: its experiments, and its plot.
type suite struct {
	name  string
	about string
	make  func() []experiment
	plot  func(ctx context.Context, p *plotter) error
}

// suites are all of them, in order.
var suites = []suite{
	{name: "S1", about: "path map: snapshot against locks", make: s1Experiments, plot: s1Plot},
	{name: "S2", about: "tags: against four other allocators", make: s2Experiments, plot: s2Plot},
	{name: "S3", about: "the submitter sends: against a dispatcher", make: s3Experiments, plot: s3Plot},
	{name: "S4", about: "merging sequential I/O: against sending each request", make: s4Experiments, plot: s4Plot},
	{name: "S5", about: "polling readers: against sleeping ones", make: s5Experiments, plot: s5Plot},
}

// SuiteNames lists what Options.Suites may hold.
func SuiteNames() []string {
	var out []string
	for _, s := range suites {
		out = append(out, s.name)
	}
	return out
}

// Options say what to run.
type Options struct {
	Suites []string // names of SuiteNames; empty: all
	Rounds int      // 0 is MinRounds
	// Quick runs everything once for a moment: the checks, and no figure worth
	// anything.
	Quick bool
	// Plot is the folder for one SVG per suite; "" makes none.
	Plot string
	// Limit is how long all may take: with little time left nothing is measured
	// again because its control did not hold. 0: no limit.
	Limit time.Duration
	// Progress is told what happens; nil: nobody.
	Progress io.Writer
}

// Seeds measures the founding ideas and returns a claim per goal. An error
// means that a check failed, or that ctx ended; unmet goals are Verdict's.
func Seeds(ctx context.Context, o Options) ([]Claim, error) {
	if o.Rounds == 0 {
		o.Rounds = MinRounds
	}
	if o.Rounds < 1 || o.Rounds > MaxRounds {
		return nil, fmt.Errorf("%d rounds: 1 to %d are possible", o.Rounds, MaxRounds)
	}
	for _, n := range o.Suites {
		if !slices.Contains(SuiteNames(), n) {
			return nil, fmt.Errorf("suite %q is not known: use some of %v", n, SuiteNames())
		}
	}
	r := &runner{Options: o, began: time.Now()}
	if o.Limit > 0 && !o.Quick {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.Limit, fmt.Errorf("the limit of %v is over", o.Limit))
		defer cancel()
	}
	wanted := slices.DeleteFunc(slices.Clone(suites), func(s suite) bool {
		return len(o.Suites) > 0 && !slices.Contains(o.Suites, s.name)
	})
	for _, s := range wanted {
		for _, e := range s.make() {
			r.rest += r.nominal(e)
		}
		if o.Plot != "" {
			r.rest += plotTime
		}
	}
	for _, s := range wanted {
		if err := r.suite(ctx, s); err != nil {
			return r.claims, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return r.claims, nil
}

type runner struct {
	Options
	claims []Claim
	began  time.Time
	rest   time.Duration     // what is still to be measured takes so long
	onRun  func(side string) // told of each run, if set
}

func (r *runner) progress(format string, a ...any) {
	if r.Progress != nil {
		fmt.Fprintf(r.Progress, "%4.0fs  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, a...))
	}
}

func (r *runner) suite(ctx context.Context, s suite) error {
	r.progress("%s, %s (%d CPUs)", s.name, s.about, runtime.GOMAXPROCS(0))
	for _, e := range s.make() {
		r.rest -= r.nominal(e)
		if err := r.experiment(ctx, s.name, e); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	if r.Plot == "" || s.plot == nil {
		return nil
	}
	r.rest -= plotTime
	if !r.timeFor(plotTime) && !r.Quick {
		r.progress("%s: no time for its plot", s.name)
		return nil
	}
	r.progress("%s: plot", s.name)
	return s.plot(ctx, &plotter{dir: r.Plot, quick: r.Quick})
}

// experiment measures until the controls hold, a bounded number of times.
func (r *runner) experiment(ctx context.Context, suite string, e experiment) error {
	for try := 1; ; try++ {
		began := time.Now()
		samples, err := r.measure(ctx, e)
		if err != nil {
			return err
		}
		claims, void := e.judge(suite, samples)
		for i := range claims {
			c := &claims[i]
			r.progress("%s %s: %.3g [%.3g..%.3g] %s; %s against %s; A/A %.3f %s",
				c.Claim, c.Metric, c.Ratio, c.Lo, c.Hi, c.goalText(), figure(c.Ours), figure(c.Theirs), c.Control, c.state())
		}
		if !void || try == maxTries || r.Quick || !r.timeFor(time.Since(began)) {
			r.claims = append(r.claims, claims...)
			return nil
		}
		r.progress("%s: A/A is outside 1.00 +-%.2f: measured again", e.name, controlSpan)
	}
}

// measure is rounds within what goes on around them.
func (r *runner) measure(ctx context.Context, e experiment) ([][]sample, error) {
	if e.around != nil {
		end, err := e.around()
		if err != nil {
			return nil, err
		}
		defer end()
	}
	return r.rounds(ctx, e)
}

// timeFor reports whether one more try of so long leaves the time for the rest.
func (r *runner) timeFor(try time.Duration) bool {
	return r.Limit == 0 || time.Since(r.began)+try+r.rest < r.Limit
}

// nominal is how long an experiment takes without another try.
func (r *runner) nominal(e experiment) (d time.Duration) {
	for _, s := range append(slices.Clone(e.sides), e.sides[0]) {
		d += time.Duration(float64(r.length(e)+s.extra)*overhead) * time.Duration(r.Rounds)
	}
	return d
}

// rounds runs every side in every round, the first one twice: its second list
// is the control, and the last of the result. The order is reversed every other
// turn (ABBA), so that a drift hits both sides alike.
func (r *runner) rounds(ctx context.Context, e experiment) ([][]sample, error) {
	all := append(slices.Clone(e.sides), e.sides[0])
	out := make([][]sample, len(all))
	rounds, turns := r.Rounds, max(e.turns, 1)
	if r.Quick {
		rounds, turns = 1, 1
	}
	for turn := range rounds * turns {
		for i := range all {
			k := i
			if turn%2 == 1 {
				k = len(all) - 1 - i
			}
			s, err := r.run(ctx, all[k], r.length(e)/time.Duration(turns))
			if err != nil {
				return nil, err
			}
			if turn%turns == 0 {
				out[k] = append(out[k], sample{})
			}
			out[k][turn/turns].add(s, turns)
		}
	}
	return out, nil
}

// run runs one side once.
func (r *runner) run(ctx context.Context, s side, d time.Duration) (sample, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if r.onRun != nil {
		r.onRun(s.name)
	}
	runtime.GC()
	got, err := s.run(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return got, nil
}

// add makes s the mean of n samples, one by one.
func (s sample) add(one sample, n int) {
	for m, v := range one {
		s[m] += v / float64(n)
	}
}

func (r *runner) length(e experiment) time.Duration {
	switch {
	case r.Quick:
		return quickSample
	case e.length != 0:
		return e.length
	case e.turns > 1:
		return turnedSample
	}
	return shortSample
}

// judge makes the claims; void tells whether one with a goal has a control that
// does not hold.
func (e *experiment) judge(suite string, samples [][]sample) (out []Claim, void bool) {
	for _, c := range e.claims {
		name := c.name
		if name == "" {
			name = e.name
		}
		c.ours, c.base = e.best(samples, c.ours, c.metric), e.best(samples, c.base, c.metric)
		if c.ours != "" && c.ours != e.sides[0].name && c.name == "" {
			name += ": " + c.ours
		}
		o := Claim{Suite: suite, Claim: name, Metric: string(c.metric), Baseline: c.base, Goal: c.goal, AtMost: c.atMost, Seed: c.seed,
			EveryRound: c.everyRound, Rounds: len(samples[0])}
		ours := e.values(samples, c.ours, c.metric)
		o.Ours = median(ours)
		values := ours
		if c.base != "" {
			theirs := e.values(samples, c.base, c.metric)
			o.Theirs = median(theirs)
			values = paired(ours, theirs)
			o.Control = median(paired(column(samples[len(samples)-1], c.metric), column(samples[0], c.metric)))
			o.Void = math.Abs(o.Control-1) > controlSpan && !c.everyRound
		}
		o.judge(values)
		void = void || o.Void && !o.reported()
		out = append(out, o)
	}
	return out, void
}

// best is the name a claim means.
func (e *experiment) best(samples [][]sample, name string, m metric) string {
	prefix, open := strings.CutSuffix(name, "*")
	if !open {
		return name
	}
	most := -1.0
	for i, s := range e.sides {
		if v := median(column(samples[i], m)); strings.HasPrefix(s.name, prefix) && v > most {
			name, most = s.name, v
		}
	}
	return name
}

func (e *experiment) values(samples [][]sample, name string, m metric) []float64 {
	if name == "" {
		return column(samples[0], m)
	}
	i := slices.IndexFunc(e.sides, func(s side) bool { return s.name == name })
	if i < 0 {
		panic("bench: BUG: no side " + name)
	}
	return column(samples[i], m)
}

func column(s []sample, m metric) []float64 {
	out := make([]float64, 0, len(s))
	for _, x := range s {
		out = append(out, x[m])
	}
	return out
}

// errCheck marks a failed check: what was measured did not do its work.
var errCheck = errors.New("check failed")

func checkf(format string, a ...any) error {
	return fmt.Errorf("%w: %s", errCheck, fmt.Sprintf(format, a...))
}
