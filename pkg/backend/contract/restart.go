package contract

import (
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

var endChecks = []check{
	{"ARestartChangesNothing", eachTransport | restart, aRestartChangesNothing},
	{"AnyCallIsFinishedAfterACrash", eachTransport | crash, anyCallIsFinishedAfterACrash},
	{"AnyCallIsUndoneAfterACrash", eachTransport | crash, anyCallIsUndoneAfterACrash},
	{"RandomCallsDoWhatTheModelDoes", 0, randomCallsDoWhatTheModelDoes},
	{"RandomCallsWithCrashesDoWhatTheModelDoes", crash, randomCallsWithCrashesDoWhatTheModelDoes},
}

func aRestartChangesNothing(r *trial) {
	ask := r.asks("vol", 1)
	ask.Tunables = tunables(2, 2)
	v, other := r.create(ask), r.create(r.asks("other", 1))
	if r.pool.Snapshots {
		copied := r.asks("copy", 2)
		copied.Source.Snapshot = r.snapshot("snap", v.ID).ID
		r.create(copied)
	}
	p := r.shared(v.ID, "a")
	p.ReadOnly, p.Auth = true, auth(r.transport, 1)
	first, second := r.publish(p), r.publish(r.shared(v.ID, "b"))
	r.publish(r.to(other.ID, "bad"))
	r.ok(r.b.Fence(r.ctx, "bad"), "fencing a node")
	before := r.details()
	for range 2 {
		r.use(r.s.Restart(r.TB))
		if after := r.details(); !slices.Equal(after, before) {
			r.Errorf("got %v, was %v", after, before)
		}
		r.sameConnection(r.publish(r.shared(v.ID, "b")), second, "published again")
		if r.s.Attach != nil {
			r.ok(r.attach(first, p.Auth).Close(), "closing")
		}
	}
	r.sameConnection(r.publish(p), first, "published again")
	_, err := r.b.Publish(r.ctx, r.to(other.ID, "bad"))
	r.want(err, "publishing to the fenced node", backend.ErrFenced)
	r.clear()
	r.nothingIsLeft()
	r.use(r.s.Restart(r.TB))
	r.isEmptyBut()
	r.nothingIsLeft()
}
