package contract

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

var outerChecks = []check{
	{"AnotherTenantSeesAndChangesNothing", eachTransport | otherTenant, anotherTenantSeesAndChangesNothing},
	{"TheSameNameIsAnotherVolumeForAnotherTenant", otherTenant, theSameNameIsAnotherVolumeForAnotherTenant},
	{"AnEndedContextIsAnError", 0, anEndedContextIsAnError},
	{"EventsReachWatchersOfTheTenant", 0, eventsReachWatchersOfTheTenant},
	{"TheSameCallAtOnceIsOneCall", eachTransport, theSameCallAtOnceIsOneCall},
	{"OppositeCallsAtOnceEndInOneOfBothStates", eachTransport, oppositeCallsAtOnceEndInOneOfBothStates},
}

func anotherTenantSeesAndChangesNothing(r *trial) {
	v := r.create(r.asks("vol", 1))
	ids := []backend.ID{v.ID}
	if r.pool.Snapshots {
		ids = append(ids, r.snapshot("snap", v.ID).ID)
	}
	c := r.publish(r.to(v.ID, "node"))
	before := r.picture()
	o := *r
	o.b = patient{r.s.Other}
	for _, id := range ids {
		for what, err := range o.everyVerb(id) {
			if err != nil || !(strings.HasPrefix(what, "Delete") || what == "Unpublish") {
				r.want(err, "another tenant's "+what+" of "+id.String(), backend.ErrNotFound)
			}
		}
		for _, from := range []backend.Source{{Volume: id}, {Snapshot: id}} {
			_, err := o.b.CreateVolume(r.ctx, backend.CreateVolume{Name: "theirs", Pool: r.pool.Name, Source: from})
			r.want(err, "another tenant's copy", backend.ErrNotFound, backend.ErrUnsupported)
		}
	}
	r.ok(o.b.Fence(r.ctx, "node"), "another tenant's fence")
	if got := o.picture(); len(got) != 1 || got[0] != "fenced node" {
		r.Errorf("another tenant sees %v", got)
	}
	if got := r.picture(); !slices.Equal(got, before) {
		r.Errorf("another tenant changed it: got %v, was %v", got, before)
	}
	r.sameConnection(r.publish(r.to(v.ID, "node")), c, "after another tenant's calls")
	r.ok(o.b.Unfence(r.ctx, "node"), "another tenant's unfence")
}

func theSameNameIsAnotherVolumeForAnotherTenant(r *trial) {
	mine := r.create(r.asks("vol", 1))
	theirs, err := r.s.Other.CreateVolume(r.ctx, r.asks("vol", 2))
	r.ok(err, "another tenant's volume")
	if theirs.ID == mine.ID || theirs.Identity == mine.Identity || theirs.Size != r.size(2) {
		r.Errorf("got %s beside %s", volumeText(theirs), volumeText(mine))
	}
	r.isEmptyBut("vol")
	r.ok(r.s.Other.DeleteVolume(r.ctx, theirs.ID), "deleting it")
	r.isEmptyBut("vol")
}

func anEndedContextIsAnError(r *trial) {
	v := r.create(r.asks("vol", 1))
	r.publish(r.to(v.ID, "node"))
	before := r.picture()
	ended := *r
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	ended.ctx = ctx
	calls := ended.everyVerb(v.ID)
	_, calls["CreateVolume"] = r.b.CreateVolume(ctx, r.asks("new", 1))
	_, _, calls["Volumes"] = r.b.Volumes(ctx, backend.Page{})
	_, _, calls["Snapshots"] = r.b.Snapshots(ctx, backend.ID{}, backend.Page{})
	_, _, calls["Publications"] = r.b.Publications(ctx, backend.PublicationFilter{}, backend.Page{})
	_, calls["Capacity"] = r.b.Capacity(ctx, r.pool.Name)
	calls["Fence"], calls["Unfence"] = r.b.Fence(ctx, "node"), r.b.Unfence(ctx, "node")
	_, calls["Fenced"] = r.b.Fenced(ctx)
	for what, err := range calls {
		if err == nil {
			r.Errorf("%s succeeded", what)
		}
	}
	r.Logf("state before: %v", before)
	// What was begun may have been done, and what is done again ends all the same.
	r.ok(r.b.Fence(r.ctx, "node"), "fencing it")
	r.ok(r.b.Unfence(r.ctx, "node"), "lifting it")
	r.clear()
	r.nothingIsLeft()
}

func eventsReachWatchersOfTheTenant(r *trial) {
	mine, theirs := r.watch(r.s.Backend), r.watch(r.s.Other)
	r.untilFenced(r.s.Backend, mine, "mine-")
	if r.s.Other == nil {
		return
	}
	for _, e := range r.untilFenced(r.s.Other, theirs, "theirs-") {
		if strings.HasPrefix(e.Node, "mine-") {
			r.Errorf("another tenant was told of %s", e.Node)
		}
	}
}

// watch has events in a channel.
func (r *trial) watch(b backend.Backend) <-chan backend.Event {
	if b == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(r.ctx)
	events, done := make(chan backend.Event, 1000), make(chan struct{})
	go func() {
		defer close(done)
		if err := b.Watch(ctx, func(e backend.Event) {
			select {
			case events <- e:
			case <-ctx.Done():
			}
		}); ctx.Err() == nil {
			r.Errorf("Watch ended: %v", err)
		}
	}()
	r.Cleanup(func() { cancel(); <-done })
	return events
}

// untilFenced fences nodes until the watcher, who may have come late, is told of
// one, and returns what it was told.
func (r *trial) untilFenced(b backend.Backend, events <-chan backend.Event, prefix string) []backend.Event {
	r.Helper()
	var all []backend.Event
	for i := 0; ; i++ {
		node := prefix + strconv.Itoa(i)
		r.ok(errors.Join(b.Fence(r.ctx, node), b.Unfence(r.ctx, node)), "fencing "+node)
		pause := time.NewTimer(20 * time.Millisecond)
		for waiting := true; waiting; {
			select {
			case e := <-events:
				all = append(all, e)
				if e.Kind == backend.NodeFenced && strings.HasPrefix(e.Node, prefix) && !e.Time.IsZero() && e.Message != "" {
					return all
				}
			case <-pause.C:
				waiting = false
			case <-r.ctx.Done():
				r.Fatalf("no event says that a node was fenced: got %v", all)
			}
		}
	}
}

// clear removes all there is, as its owner would.
func (r *trial) clear() {
	r.Helper()
	for _, v := range r.volumes() {
		r.unpublish(v.ID, "")
		r.ok(r.b.DeleteVolume(r.ctx, v.ID), "deleting volume "+v.Name)
	}
	for _, s := range r.snapshots() {
		r.ok(r.b.DeleteSnapshot(r.ctx, s.ID), "deleting snapshot "+s.Name)
	}
	nodes, err := r.b.Fenced(r.ctx)
	r.ok(err, "listing fenced nodes")
	for _, n := range nodes {
		r.ok(r.b.Unfence(r.ctx, n), "lifting the fence of "+n)
	}
}
