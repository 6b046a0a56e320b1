package contract

import (
	"fmt"
	"slices"
	"sync"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// together makes a call several times at once, and wants each to succeed with
// the same result.
func together(r *trial, what string, call func() (string, error)) {
	r.Helper()
	var wg sync.WaitGroup
	results, errs := make([]string, atOnce), make([]error, atOnce)
	for i := range atOnce {
		wg.Go(func() { results[i], errs[i] = call() })
	}
	wg.Wait()
	for i := range atOnce {
		r.ok(errs[i], what)
		if results[i] != results[0] {
			r.Errorf("%s: got %s and %s", what, results[0], results[i])
		}
	}
}

func theSameCallAtOnceIsOneCall(r *trial) {
	v, s := r.create(r.asks("vol", 1)), backend.Snapshot{}
	ask := r.asks("new", 1)
	together(r, "CreateVolume", func() (string, error) { got, err := r.b.CreateVolume(r.ctx, ask); return volumeText(got), err })
	if r.pool.Snapshots {
		s = r.snapshot("of it", v.ID)
		ask.Name, ask.Source.Snapshot = "copy", s.ID
		together(r, "CreateVolume of a snapshot", func() (string, error) { got, err := r.b.CreateVolume(r.ctx, ask); return volumeText(got), err })
		together(r, "CreateSnapshot", func() (string, error) {
			got, err := r.b.CreateSnapshot(r.ctx, backend.CreateSnapshot{Name: "snap", Of: v.ID})
			return fmt.Sprint(got.ID, got.Size, got.Created.UTC()), err
		})
		together(r, "DeleteSnapshot", func() (string, error) { return "", r.b.DeleteSnapshot(r.ctx, s.ID) })
	}
	together(r, "ExpandVolume", func() (string, error) {
		got, err := r.b.ExpandVolume(r.ctx, v.ID, backend.Size{Required: r.size(2)})
		return volumeText(got), err
	})
	together(r, "TuneVolume", func() (string, error) {
		got, err := r.b.TuneVolume(r.ctx, v.ID, tunables(3, 3))
		return volumeText(got), err
	})
	for _, end := range []func() error{
		func() error { return r.b.Unpublish(r.ctx, v.ID, "node") }, func() error { return r.b.Unpublish(r.ctx, v.ID, "") }, func() error { return r.b.Fence(r.ctx, "node") },
	} {
		together(r, "Publish", func() (string, error) {
			c, err := r.b.Publish(r.ctx, r.to(v.ID, "node"))
			return connectionText(c), err
		})
		together(r, "Unpublish or Fence", func() (string, error) { return "", end() })
		if all := r.publications(); len(all) != 0 {
			r.Errorf("got %+v", all)
		}
	}
	together(r, "Unfence", func() (string, error) { return "", r.b.Unfence(r.ctx, "node") })
	together(r, "DeleteVolume", func() (string, error) { return "", r.b.DeleteVolume(r.ctx, v.ID) })
	r.clear()
	r.nothingIsLeft()
}

func oppositeCallsAtOnceEndInOneOfBothStates(r *trial) {
	for range atOnce {
		v := r.create(r.asks("vol", 1))
		both := []func(){
			func() { _, _ = r.b.Publish(r.ctx, r.to(v.ID, "node")) },
			func() { _ = r.b.Unpublish(r.ctx, v.ID, "node") },
			func() { _ = r.b.DeleteVolume(r.ctx, v.ID) },
			func() { _, _ = r.b.ExpandVolume(r.ctx, v.ID, backend.Size{Required: r.size(2)}) },
			func() { _ = r.b.Fence(r.ctx, "node") },
			func() { _, _ = r.b.CreateVolume(r.ctx, r.asks("vol", 1)) },
		}
		var wg sync.WaitGroup
		for _, f := range slices.Concat(both, both) {
			wg.Go(f)
		}
		wg.Wait()
		// Whoever came first: after the fence the node has nothing, and all can go.
		if all := r.publications(); len(all) != 0 {
			r.Errorf("a fenced node has %+v", all)
		}
		r.clear()
		r.isEmptyBut()
		r.nothingIsLeft()
	}
}
