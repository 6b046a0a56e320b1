package datapath

import (
	"context"
	"fmt"
	"time"
)

// wakeJudge ends the judge's rest. Any goroutine; never blocks.
func (d *Device) wakeJudge() {
	if d.resting.Swap(false) {
		select {
		case d.judgeWake <- struct{}{}:
		default:
		}
		d.wakeTuner()
	}
}

// judging is the shell of the judge: the only goroutine that touches it.
type judging struct {
	d      *Device
	j      judge
	obs    []observation
	idle   int    // looks in a row without an answer
	sum    uint64 // answers of all paths at the last look
	probes chan probeResult
	out    []bool          // a probe of the path is under way
	next   []time.Duration // when the path is probed next
}

// probeResult is how one probe went.
type probeResult struct {
	path            int
	took, reference time.Duration
	answered        bool
}

// judgePaths compares the paths while there is traffic, and probes marginal
// ones until they recover.
func (d *Device) judgePaths(ctx context.Context) {
	n := len(d.paths)
	g := &judging{d: d, obs: make([]observation, n), probes: make(chan probeResult, n), out: make([]bool, n), next: make([]time.Duration, n)}
	t := time.NewTimer(judgePeriod)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-g.probes:
			g.probed(r)
			continue
		case <-d.judgeWake:
			g.idle = 0
		case <-t.C:
		}
		g.look(ctx)
		switch rests := g.idle >= judgeRest; {
		case !rests:
			t.Reset(judgePeriod)
		case g.j.any():
			t.Reset(probeEvery)
		default:
			d.resting.Store(true)
			t.Stop()
		}
	}
}

func (g *judging) look(ctx context.Context) {
	now := time.Duration(g.d.now())
	g.observe()
	sum, waiting := uint64(0), false
	for i := range g.obs {
		sum += g.obs[i].answers
		waiting = waiting || g.obs[i].waiting > 0
	}
	if g.idle++; sum != g.sum || waiting {
		g.idle, g.sum = 0, sum
	}
	if g.j.look(now, g.obs) {
		g.publish()
	}
	for i := range g.obs {
		if g.j.marked(i) && g.obs[i].fit && !g.out[i] && now >= g.next[i] {
			g.out[i], g.next[i] = true, now+probeEvery
			g.probe(ctx, i)
		}
	}
}

// observe reads every path.
func (g *judging) observe() {
	d := g.d
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, p := range d.paths {
		lv := p.live
		if lv == nil {
			g.obs[i] = observation{}
			continue
		}
		s := lv.q.Stats()
		g.obs[i] = observation{fit: lv.tier() < tierDrained, inc: lv.inc, answers: s.Answers, busy: s.Busy,
			waiting: s.Waiting, moved: lv.bytesMoved()}
	}
}

// publish makes the judge's marks the device's.
func (g *judging) publish() {
	d := g.d
	var events []Event
	d.mu.Lock()
	for i, p := range d.paths {
		if mark := g.j.marked(i); p.marginal != mark {
			p.marginal = mark
			h := &g.j.paths[i]
			e := Event{Kind: PathMarginal, Path: p.tr.Name(),
				Detail: fmt.Sprintf("answers take %v, far more than on the other paths: used only when no other is left", h.latency.Round(time.Microsecond))}
			if !mark {
				e.Kind, e.Detail = PathRecovered, "as quick as the other paths again"
			}
			events = append(events, e)
		}
	}
	d.rebuild(false)
	d.mu.Unlock()
	for _, e := range events {
		d.emit(e)
	}
	d.kickAll()
}

// probe times one block on path i, and on a path in order beside it.
func (g *judging) probe(ctx context.Context, i int) {
	d := g.d
	d.mu.Lock()
	var bad, good *live
	bad = d.paths[i].live
	for _, p := range d.paths {
		if p.live != nil && p.live.tier() < tierMarginal {
			good = p.live
			break
		}
	}
	d.mu.Unlock()
	d.wg.Go(func() {
		r := probeResult{path: i}
		if good != nil {
			r.reference, _ = timed(ctx, good)
		}
		if bad != nil {
			r.took, r.answered = timed(ctx, bad)
		}
		g.probes <- r // has room: one probe of a path at a time
	})
}

func timed(ctx context.Context, lv *live) (time.Duration, bool) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	start := time.Now()
	err := lv.q.Probe(ctx)
	return time.Since(start), err == nil
}

func (g *judging) probed(r probeResult) {
	g.out[r.path] = false
	if g.j.probed(r.path, time.Duration(g.d.now()), r.took, r.reference, r.answered) {
		g.publish()
	}
}
