package keeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
)

// What is served is made what a record says, whatever it is now, in two steps: the
// verbs end in them, and so do start and the reconciler. The volume's lock is held.
//
//  1. revoke puts out those who are being revoked. It asks the exporter only: a
//     store that cannot be read, or has lost the volume, keeps nobody in.
//  2. serve serves the others.

// revoke has those out, and drained, who are being revoked, and only then forgets
// them (I9): one that fails has forgotten nobody. It returns who is left.
func (k *Keeper) revoke(ctx context.Context, p *pool, r record) (live record, err error) {
	live = r.live()
	if len(live.pubs) == len(r.pubs) {
		return live, nil
	}
	x := p.exporter(r.transport())
	if x == nil {
		return r, p.noExporter(r.transport())
	}
	if len(live.pubs) == 0 {
		err = k.unserve(ctx, p, x, r)
	} else if err = x.Revoke(ctx, r.volume, r.identity, live.initiators()); err == nil {
		faultpoint.Here("keeper.settle.revoked")
	}
	if err == nil {
		err = k.journal.write(live)
	}
	if err != nil {
		return r, err
	}
	faultpoint.Here("keeper.settle.forgotten")
	return live, nil
}

// serve exports a volume to exactly those that r names, of whom nobody is being
// revoked. o is the volume's object, zero if it has none.
func (k *Keeper) serve(ctx context.Context, p *pool, r record, o store.Object) (bool, error) {
	if len(r.pubs) == 0 {
		return false, nil
	}
	x := p.exporter(r.transport())
	if x == nil {
		return false, p.noExporter(r.transport())
	}
	e, err := k.export(ctx, p, r, o)
	if err != nil {
		return false, err
	}
	faultpoint.Here("keeper.settle.activated")
	changed, err := x.Ensure(ctx, e)
	if err != nil {
		return false, err
	}
	faultpoint.Here("keeper.settle.ensured")
	return changed, nil
}

// export is how a volume is served; its bytes are made available.
func (k *Keeper) export(ctx context.Context, p *pool, r record, o store.Object) (export.Export, error) {
	if o.Labels.Identity != r.identity {
		return export.Export{}, fmt.Errorf("%w: volume %s is published, and has vanished from its pool, or is another: unpublish it", backend.ErrUnavailable, r.volume)
	}
	backing, err := p.store.Activate(ctx, o.Name)
	if err != nil {
		return export.Export{}, err
	}
	e := export.Export{Volume: r.volume, Identity: r.identity, Backing: backing, Size: o.Size,
		// What lies between us and the disk may cache, and flushing costs nothing
		// where it does not: never claim less (I4).
		Cache: true, Discard: p.features.Thin}
	for _, pub := range r.pubs {
		e.Access = append(e.Access, export.Access{Initiator: pub.initiator(), HostID: pub.hostID(), ReadOnly: pub.readOnly, Auth: pub.auth})
	}
	return e, nil
}

// unserve ends a volume's export. Bytes that stay available to this machine are
// nobody's access: whoever publishes or deletes the volume next finds them so.
func (k *Keeper) unserve(ctx context.Context, p *pool, x export.Exporter, r record) error {
	if err := x.Remove(ctx, r.volume, r.identity); err != nil {
		return err
	}
	faultpoint.Here("keeper.settle.removed")
	k.deactivate(ctx, p, r.volume)
	faultpoint.Here("keeper.settle.deactivated")
	return nil
}

func (k *Keeper) deactivate(ctx context.Context, p *pool, id backend.ID) {
	if err := p.store.Deactivate(ctx, id.Object); ifThere(err) != nil {
		k.log.Warn("volume stays active", "volume", id.String(), "error", err)
	}
}

// tell has initiators told of a volume's size.
func (k *Keeper) tell(ctx context.Context, p *pool, r record, o store.Object) error {
	live := r.live()
	x := p.exporter(live.transport())
	if len(live.pubs) == 0 {
		return nil
	}
	if x == nil {
		return p.noExporter(live.transport())
	}
	e, err := k.export(ctx, p, live, o)
	if err != nil {
		return err
	}
	return x.Resize(ctx, e)
}

// hopeless are errors that a repetition cannot mend.
func hopeless(err error) bool {
	return errors.Is(err, backend.ErrInvalid) || errors.Is(err, backend.ErrUnsupported)
}
