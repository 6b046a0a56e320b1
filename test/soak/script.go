package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/csi-mpath/csi-mpath/test/interop/rig"
)

// kind is a kind of event.
type kind string

const (
	control   kind = "control"    // nothing happens: what the machine itself does to answer times
	reset     kind = "reset"      // RST on every connection of one path
	kill      kind = "kill -9"    // the target daemon dies and is started again
	blackHole kind = "black hole" // one path swallows everything
	delay     kind = "delay"      // one path gets slow
	both      kind = "both reset" // RST on both paths at once: no path for a moment
)

// weights are how often each kind comes, in percent.
var weights = []struct {
	kind   kind
	weight int
}{{reset, 35}, {kill, 30}, {blackHole, 15}, {delay, 12}, {both, 8}}

// step is one planned event: all randomness is in the plan, so a seed is a script.
type step struct {
	kind  kind
	path  int
	dwell time.Duration // how long the fault stays
	delay time.Duration
}

func plan(rng *rand.Rand) step {
	s := step{path: rng.IntN(2), dwell: 500*time.Millisecond + rand64(rng, 1500*time.Millisecond),
		delay: 20*time.Millisecond + rand64(rng, 60*time.Millisecond)}
	n := rng.IntN(100)
	for _, w := range weights {
		if n -= w.weight; n < 0 {
			s.kind = w.kind
			break
		}
	}
	return s
}

func rand64(rng *rand.Rand, below time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(below)))
}

// inject causes the fault and returns when it has happened.
func (s step) inject(r *rig.Rig) {
	p := r.Paths[s.path]
	switch s.kind {
	case reset:
		p.Reset()
	case both:
		r.Paths[0].Reset()
		r.Paths[1].Reset()
	case kill:
		p.Kill()
	case blackHole:
		p.BlackHole()
	case delay:
		p.Delay(s.delay)
	case control:
	}
}

// heal keeps the fault for its time and ends it.
func (s step) heal(ctx context.Context, r *rig.Rig) error {
	p := r.Paths[s.path]
	switch s.kind {
	case blackHole:
		// Not before it was noticed: otherwise it was no more than a pause.
		if err := r.WaitDown(ctx, p); err != nil {
			return err
		}
		rig.Pause(ctx, s.dwell)
		p.Restore()
	case delay:
		rig.Pause(ctx, s.dwell)
		p.Restore()
	case kill:
		rig.Pause(ctx, s.dwell)
		return p.Revive(ctx)
	case reset, both, control:
	}
	return nil
}

// broken are the paths whose connections the fault ends.
func (s step) broken(r *rig.Rig) []*rig.Path {
	switch s.kind {
	case both:
		return r.Paths
	case reset, kill, blackHole:
		return r.Paths[s.path : s.path+1]
	case control, delay:
	}
	return nil
}

// connects reads how often each path has connected so far.
func connects(ctx context.Context, r *rig.Rig) ([]uint64, error) {
	var out []uint64
	for _, p := range r.Paths {
		n, err := r.Connects(ctx, p)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

// run causes the fault, ends it, and waits until every path is back. hit is
// called when the fault has happened.
func (s step) run(ctx context.Context, r *rig.Rig, hit func()) error {
	before, err := connects(ctx, r)
	if err != nil {
		return err
	}
	s.inject(r)
	hit()
	if err := s.heal(ctx, r); err != nil {
		return err
	}
	for _, p := range s.broken(r) {
		if err := r.WaitBack(ctx, p, before[slices.Index(r.Paths, p)]); err != nil {
			return fmt.Errorf("after %s of path %s: %w", s.kind, p.Name, err)
		}
	}
	return r.WaitUp(ctx, len(r.Paths))
}
