package volume

import (
	"slices"
	"sync"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/durable"
)

// Claim 3: each call five times at once, each answer is that of one alone, or "in
// progress", and the end is the same.
func TestFiveOfEachCallAtOnce(t *testing.T) {
	r := newRig(t)
	r.s.create("a", 64<<20)
	for _, call := range append(r.verbs(), r.verbs()...) {
		errs := make([]error, 5)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = call() })
		}
		wg.Wait()
		done := 0
		for _, err := range errs {
			if err == nil {
				done++
				continue
			}
			r.want(err, ErrBusy)
		}
		if done == 0 {
			t.Error("nobody got through")
		}
	}
	r.clean()
	if n := r.s.node.Ran("mkfs.ext4"); n != 1 {
		t.Errorf("mkfs ran %d times", n)
	}
}

// A kill while a device of a revoked publication is replaced.
func TestAKillWhileAnotherEpochReplacesTheDevice(t *testing.T) {
	for _, point := range slices.Concat(Points, durable.Points) {
		t.Run(point, func(t *testing.T) {
			r := newRig(t)
			r.stagedVolume("a")
			r.must(r.Publish(t.Context(), r.publish("a", "pod")))
			old := r.s.kernel["a"]
			stage := func() error { return r.Stage(t.Context(), r.requestFor("a", attachment("a", "e2"))) }
			if crashing(point, func() { r.must(stage()) }) {
				r.s.kill()
				r.abandon()
				r.start()
				r.must(r.Recover(t.Context()))
				r.must(stage())
			}
			if now := r.s.kernel["a"]; now == old || now.failed || !old.failed {
				t.Errorf("the old device: failed %t; replaced %t", old.failed, now != old)
			}
			r.must(r.Unpublish(t.Context(), "a", r.publish("a", "pod").Target))
			r.must(r.Unstage(t.Context(), "a", r.request("a").Staging))
			r.clean()
		})
	}
}
