package volume

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
)

// sequences is how many are played; what CI plays takes seconds.
var sequences = flag.Int("volume.sequences", 5, "random sequences of 100 calls each")

// model is what a volume should be: slow and obvious.
type model struct {
	staged    bool
	published map[string]bool
}

// Claim 3: random sequences of calls and kills against a model; afterwards the
// same state, and nothing leaked.
func TestRandomSequencesEndAsTheModelSays(t *testing.T) {
	for seed := range uint64(*sequences) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := newRig(t)
			rng := rand.New(rand.NewPCG(seed, 1))
			names, pods := []string{"a", "b", "c"}, []string{"p", "q"}
			models := map[string]*model{}
			for _, n := range names {
				r.s.create(n, 64<<20)
				models[n] = &model{published: map[string]bool{}}
			}
			for range 100 {
				n := names[rng.IntN(len(names))]
				r.random(rng, n, pods[rng.IntN(len(pods))], models[n])
				r.compare(n, pods, models[n])
			}
			for _, n := range names {
				for _, p := range pods {
					r.must(r.Unpublish(t.Context(), n, r.publish(n, p).Target))
				}
				r.must(r.Unstage(t.Context(), n, r.request(n).Staging))
			}
			r.clean()
			if got := r.s.node.Ran("mkfs.ext4"); got > len(names) {
				t.Errorf("mkfs ran %d times for %d volumes", got, len(names))
			}
		})
	}
}

// random makes one call, cut short by a kill now and then, and repeated then.
func (r *rig) random(rng *rand.Rand, name, pod string, m *model) {
	r.t.Helper()
	ctx, p := r.t.Context(), r.publish(name, pod)
	var call func() error
	var want bool
	then := func() {}
	switch rng.IntN(7) {
	case 0, 1:
		call, want, then = func() error { return r.Stage(ctx, r.request(name)) }, true, func() { m.staged = true }
	case 2, 3:
		call, want, then = func() error { return r.Publish(ctx, p) }, m.staged, func() { m.published[pod] = true }
	case 4:
		call, want, then = func() error { return r.Unpublish(ctx, name, p.Target) }, true, func() { delete(m.published, pod) }
	case 5:
		call, want, then = func() error { return r.Unstage(ctx, name, r.request(name).Staging) }, len(m.published) == 0, func() { m.staged = false }
	case 6:
		call, want = func() error { _, err := r.Expand(ctx, name, 0); return err }, m.staged
	}
	point := Points[rng.IntN(len(Points))]
	var err error
	if rng.IntN(4) > 0 {
		point = "never"
	}
	if crashing(point, func() { err = call() }) {
		r.restart()
		err = call()
	}
	if (err == nil) != want {
		r.t.Fatalf("%v, model: success is %t", err, want)
	}
	if want {
		then()
	}
}

func (r *rig) compare(name string, pods []string, m *model) {
	r.t.Helper()
	if got := r.mountedAt(r.request(name).Staging); got != m.staged {
		r.t.Fatalf("%s is staged: %t, model %t", name, got, m.staged)
	}
	for _, p := range pods {
		if got := r.mountedAt(r.publish(name, p).Target); got != m.published[p] {
			r.t.Fatalf("%s is at %s: %t, model %t", name, p, got, m.published[p])
		}
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if attached := r.s.kernel[name] != nil; attached != m.staged || r.s.luns[target(name)].sessions > 1 {
		r.t.Fatalf("%s has a block device: %t, model %t; %d sessions", name, attached, m.staged, r.s.luns[target(name)].sessions)
	}
}
