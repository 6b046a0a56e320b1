package keeper

import (
	"slices"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
)

func TestPointsAreThoseThatVerbsComeTo(t *testing.T) {
	r := newRig(t, false)
	r.iscsi.quiescent = true
	seen := map[string]bool{}
	for _, p := range faultpoint.Trace(func() { everyVerb(t, r) }) {
		name, _, _ := strings.Cut(p, ":")
		if strings.HasPrefix(name, "keeper.") {
			seen[name] = true
		}
	}
	for _, p := range Points {
		if !seen[p] {
			t.Errorf("no verb comes to %s", p)
		}
	}
	for p := range seen {
		if !slices.Contains(Points, p) {
			t.Errorf("%s is not in Points", p)
		}
	}
}

// everyVerb makes a call of each, and ends with nothing.
func everyVerb(t *testing.T, r *rig) {
	t.Helper()
	ctx, v := t.Context(), r.create("v")
	r.publish(shared(v.ID, "n"))
	r.publish(shared(v.ID, "m"))
	r.unpublish(v.ID, "m")
	s, err := r.b.CreateSnapshot(ctx, backend.CreateSnapshot{Name: "s", Of: v.ID})
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.b.CreateVolume(ctx, backend.CreateVolume{Name: "c", Pool: pool0, Source: backend.Source{Snapshot: s.ID}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.b.ExpandVolume(ctx, v.ID, backend.Size{Required: 8 * mib}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.b.TuneVolume(ctx, v.ID, map[string]string{"a": "b"}); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	for _, err := range []error{r.b.Fence(ctx, "n"), r.b.Unfence(ctx, "n"), r.b.Unpublish(ctx, v.ID, ""), r.b.DeleteVolume(ctx, v.ID),
		r.b.DeleteVolume(ctx, c.ID), r.b.DeleteSnapshot(ctx, s.ID)} {
		if err != nil {
			t.Fatal(err)
		}
	}
}
