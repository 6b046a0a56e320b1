package contract

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// trial is one check at work.
type trial struct {
	testing.TB
	s         Subject
	b         backend.Backend // s.Backend, patient
	ctx       context.Context
	pool      backend.Pool
	transport backend.Transport
}

// try begins a check.
func try(t testing.TB, s Subject) *trial {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(s.Within, checkTimeout))
	t.Cleanup(cancel)
	r := &trial{TB: t, ctx: ctx}
	r.use(s)
	info, err := r.b.Info(ctx)
	if err != nil {
		t.Fatalf("Info: %v", err)
	}
	for _, p := range info.Pools {
		if p.Name == s.Pool {
			r.pool = p
		}
	}
	if r.pool.Name == "" || r.pool.Step < 1 || len(r.pool.Transports) == 0 {
		t.Fatalf("Info has no pool %s with a step and transports: %+v", s.Pool, info.Pools)
	}
	if len(r.s.Transports) == 0 {
		r.s.Transports = r.pool.Transports
	}
	r.transport = r.s.Transports[0]
	return r
}

// use goes on with what a Subject became.
func (r *trial) use(s Subject) {
	if len(s.Transports) == 0 {
		s.Transports = r.s.Transports
	}
	r.s, r.b = s, patient{s.Backend}
}

// size is n times the smallest volume.
func (r *trial) size(n int64) int64 {
	u := max(r.pool.Min, r.pool.Step)
	return n * ((u + r.pool.Step - 1) / r.pool.Step * r.pool.Step)
}

// want fails the check unless err is one of kinds.
func (r *trial) want(err error, what string, kinds ...error) {
	r.Helper()
	for _, k := range kinds {
		if errors.Is(err, k) {
			return
		}
	}
	r.Errorf("%s: got error %v, want %v", what, err, errors.Join(kinds...))
}

// ok ends the check unless err is nil.
func (r *trial) ok(err error, what string) {
	r.Helper()
	if err != nil {
		r.Fatalf("%s: %v", what, err)
	}
}

// asks is a request for n times the smallest volume.
func (r *trial) asks(name string, n int64) backend.CreateVolume {
	return backend.CreateVolume{Name: name, Pool: r.pool.Name, Size: backend.Size{Required: r.size(n)}}
}

// create makes what must be possible.
func (r *trial) create(c backend.CreateVolume) backend.Volume {
	r.Helper()
	v, err := r.b.CreateVolume(r.ctx, c)
	r.ok(err, fmt.Sprintf("creating volume %q", c.Name))
	return v
}

// snapshot makes what must be possible.
func (r *trial) snapshot(name string, of backend.ID) backend.Snapshot {
	r.Helper()
	s, err := r.b.CreateSnapshot(r.ctx, backend.CreateSnapshot{Name: name, Of: of})
	r.ok(err, fmt.Sprintf("creating snapshot %q", name))
	return s
}

// initiator is a node's base name.
func initiator(t backend.Transport, node string) string {
	if t == backend.NVMe {
		return "nqn.2025-01.io.csi-mpath:node:" + node
	}
	return "iqn.2025-01.io.csi-mpath:node:" + node
}

// to is a node's publication, alone and for writing.
func (r *trial) to(id backend.ID, node string) backend.Publish {
	return backend.Publish{Volume: id, Node: node, Transport: r.transport, Initiator: initiator(r.transport, node)}
}

// shared is the same for several nodes.
func (r *trial) shared(id backend.ID, node string) backend.Publish {
	p := r.to(id, node)
	p.Shared = true
	return p
}

// publish makes what must be possible.
func (r *trial) publish(p backend.Publish) backend.Connection {
	r.Helper()
	c, err := r.b.Publish(r.ctx, p)
	r.ok(err, fmt.Sprintf("publishing %s to node %s", p.Volume, p.Node))
	return c
}

// unpublish makes what must be possible.
func (r *trial) unpublish(id backend.ID, node string) {
	r.Helper()
	r.ok(r.b.Unpublish(r.ctx, id, node), fmt.Sprintf("unpublishing %s from node %q", id, node))
}

// sameVolume fails the check unless both are the same volume in the same state;
// what is known of its bytes may have changed.
func (r *trial) sameVolume(got, want backend.Volume, what string) {
	r.Helper()
	if !got.Created.Equal(want.Created) || volumeText(got) != volumeText(want) {
		r.Errorf("%s: got %s of %v, want %s of %v", what, volumeText(got), got.Created, volumeText(want), want.Created)
	}
}

// volumeText is all of a volume that does not change by itself.
func volumeText(v backend.Volume) string {
	return fmt.Sprintf("volume %s %q, %d bytes, from %v, identity %s, %s", v.ID, v.Name, v.Size, v.Source, v.Identity, tunablesText(v.Tunables, v.Generation))
}

// tunablesText prints maps in the order of their keys, an empty one as none.
func tunablesText(t map[string]string, generation int64) string {
	return fmt.Sprintf("%v in generation %d", t, generation)
}

// sameSnapshot is sameVolume for snapshots.
func (r *trial) sameSnapshot(got, want backend.Snapshot, what string) {
	r.Helper()
	same := got.Created.Equal(want.Created)
	got.Created = want.Created
	if !same || got != want {
		r.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

// sameConnection fails the check unless both lead the same node to the same
// volume. What the volume is like may have changed meanwhile.
func (r *trial) sameConnection(got, want backend.Connection, what string) {
	r.Helper()
	if g, w := connectionText(got), connectionText(want); g != w {
		r.Errorf("%s: got %s, want %s", what, g, w)
	}
}

func connectionText(c backend.Connection) string {
	var portals strings.Builder
	for _, p := range c.Portals {
		fmt.Fprintf(&portals, " %s/%d", p.Address, p.Group)
	}
	return fmt.Sprintf("%s target %s LUN %d NSID %d portals%s wwid %s initiator %s host %s epoch %s read-only %t",
		c.Transport, c.Target, c.LUN, c.NSID, portals.String(), c.WWID, c.Initiator, c.HostID, c.Epoch, c.ReadOnly)
}
