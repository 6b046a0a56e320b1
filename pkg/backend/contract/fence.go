package contract

import (
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

var fenceChecks = []check{
	{"AFencedNodeHasNothingAndGetsNothing", eachTransport, aFencedNodeHasNothingAndGetsNothing},
	{"UnfenceLetsANodeComeBackUnderAnotherEpoch", eachTransport, unfenceLetsANodeComeBackUnderAnotherEpoch},
	{"ANodeThatHasNothingIsFenced", 0, aNodeThatHasNothingIsFenced},
}

func aFencedNodeHasNothingAndGetsNothing(r *trial) {
	one, two, three := r.create(r.asks("one", 1)), r.create(r.asks("two", 1)), r.create(r.asks("three", 1))
	r.publish(r.to(one.ID, "bad"))
	r.publish(r.shared(two.ID, "bad"))
	good := r.publish(r.shared(two.ID, "good"))
	for range 2 {
		r.ok(r.b.Fence(r.ctx, "bad"), "fencing it")
		r.fenced("bad")
		if all := r.publications(); len(all) != 1 || all[0].Node != "good" {
			r.Errorf("publications: got %+v", all)
		}
		for _, p := range []backend.Publish{r.to(one.ID, "bad"), r.shared(two.ID, "bad"), r.to(three.ID, "bad")} {
			_, err := r.b.Publish(r.ctx, p)
			r.want(err, "publishing to it", backend.ErrFenced)
		}
	}
	r.sameConnection(r.publish(r.shared(two.ID, "good")), good, "another node")
	r.publish(r.to(one.ID, "good"))
	r.ok(r.b.DeleteVolume(r.ctx, three.ID), "deleting a volume")
}

// fenced wants exactly these nodes marked, in this order.
func (r *trial) fenced(want ...string) {
	r.Helper()
	got, err := r.b.Fenced(r.ctx)
	r.ok(err, "listing fenced nodes")
	slices.Sort(got)
	if !slices.Equal(got, want) {
		r.Errorf("fenced nodes: got %v, want %v", got, want)
	}
}

func unfenceLetsANodeComeBackUnderAnotherEpoch(r *trial) {
	v := r.create(r.asks("vol", 1))
	before := r.publish(r.to(v.ID, "node"))
	r.ok(r.b.Fence(r.ctx, "node"), "fencing it")
	for range 2 {
		r.ok(r.b.Unfence(r.ctx, "node"), "lifting it")
		r.fenced()
	}
	if all := r.publications(); len(all) != 0 {
		r.Errorf("publications came back: %+v", all)
	}
	if after := r.publish(r.to(v.ID, "node")); after.Epoch == before.Epoch && after.Epoch != "" {
		r.Errorf("the node came back under its epoch %s", before.Epoch)
	}
}

func aNodeThatHasNothingIsFenced(r *trial) {
	v := r.create(r.asks("vol", 1))
	r.ok(r.b.Fence(r.ctx, "unknown.example"), "fencing it")
	r.fenced("unknown.example")
	_, err := r.b.Publish(r.ctx, r.to(v.ID, "unknown.example"))
	r.want(err, "publishing to it", backend.ErrFenced)
	r.ok(r.b.Unfence(r.ctx, "unknown.example"), "lifting it")
	r.publish(r.to(v.ID, "unknown.example"))
}
