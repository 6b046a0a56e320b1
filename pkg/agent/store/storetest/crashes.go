package storetest

import (
	"slices"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
)

// crash is what a fault point throws.
type crash struct{}

// interrupted runs f until it comes to a point for the nth time, and reports
// whether it did.
func interrupted(point string, nth int, f func()) (hit bool) {
	seen := 0
	restore := faultpoint.Set(func(name string) {
		if name == point {
			if seen++; seen == nth {
				panic(crash{})
			}
		}
	})
	defer restore()
	defer func() {
		if p := recover(); p != nil {
			if p != any(crash{}) {
				panic(p)
			}
			hit = true
		}
	}()
	f()
	return false
}

// testCrashes cuts every verb short at every point, as often as it comes there,
// restarts, repeats the verb, and wants what it would have ended in; or deletes
// instead, and wants nothing.
func testCrashes(t *testing.T, r *rig) {
	r.create(r.spec("v-src"))
	r.put("v-src", 0, "source")
	for _, point := range r.sub.Points {
		for nth := 1; r.cutShort(point, nth); nth++ {
		}
	}
	r.delete("v-src")
	r.empty()
}

// cutShort reports whether any verb came to the point that often.
func (r *rig) cutShort(point string, nth int) (any bool) {
	fresh := r.spec("v-1")
	copied := r.spec("v-1")
	copied.Source, copied.Size = "v-src", r.sub.Size+r.s.Features().Step
	specs := []store.Spec{fresh}
	if r.s.Features().Snapshots {
		specs = append(specs, copied)
	}
	for _, spec := range specs {
		for _, finish := range []bool{true, false} {
			if interrupted(point, nth, func() { _, _ = r.s.Create(r.t.Context(), spec) }) {
				any = true
				r.restart()
				r.halfMade(spec.Name)
				if finish {
					r.made(spec)
				}
			}
			r.delete(spec.Name)
			r.nothingOf(spec.Name)
		}
	}
	return r.cutExpand(point, nth) || r.cutDelete(point, nth) || any
}

// halfMade: an object whose creation was interrupted is there in full, or
// unfinished, or not at all, and never two of these.
func (r *rig) halfMade(name string) {
	r.t.Helper()
	_, err := r.s.Object(r.t.Context(), name)
	unfinished, err2 := r.s.Unfinished(r.t.Context())
	if err2 != nil {
		r.t.Fatal(err2)
	}
	if err == nil && slices.Contains(unfinished, name) {
		r.t.Errorf("%s is finished and unfinished", name)
	}
}

func (r *rig) made(spec store.Spec) {
	r.t.Helper()
	if o := r.create(spec); o.Size != spec.Size || o.Labels.Name != spec.Labels.Name {
		r.t.Errorf("after a repetition: %+v", o)
	}
	if spec.Source == "" {
		r.zero(spec.Name, spec.Size)
		return
	}
	r.want(spec.Name, 0, "source")
}

func (r *rig) cutExpand(point string, nth int) bool {
	r.create(r.spec("v-1"))
	r.put("v-1", 0, "kept")
	longer := r.sub.Size + r.s.Features().Step
	hit := interrupted(point, nth, func() { _, _ = r.s.Expand(r.t.Context(), "v-1", longer) })
	if hit {
		r.restart()
		o, err := r.s.Expand(r.t.Context(), "v-1", longer)
		if err != nil || o.Size != longer {
			r.t.Errorf("expanded again after a crash at %s: %+v, %v", point, o, err)
		}
		r.want("v-1", 0, "kept")
	}
	r.delete("v-1")
	r.nothingOf("v-1")
	return hit
}

func (r *rig) cutDelete(point string, nth int) bool {
	r.create(r.spec("v-1"))
	hit := interrupted(point, nth, func() { _ = r.s.Delete(r.t.Context(), "v-1") })
	if hit {
		r.restart()
		r.halfMade("v-1")
		// A creation that follows gets a new object, unless the old one is whole.
		r.create(r.spec("v-1"))
		r.zero("v-1", r.sub.Size)
	}
	r.delete("v-1")
	r.nothingOf("v-1")
	return hit
}

// nothingOf wants no trace of an object but that of the source.
func (r *rig) nothingOf(name string) {
	r.t.Helper()
	for _, left := range r.sub.Leftovers(r.t) {
		if len(left) >= len(name) && left[:len(name)] == name {
			r.t.Errorf("%s left %s behind", name, left)
		}
	}
	u, err := r.s.Usage(r.t.Context())
	if err != nil || u.Promised != r.sub.Size {
		r.t.Errorf("%d bytes are promised, %v; want %d of the source", u.Promised, err, r.sub.Size)
	}
}
