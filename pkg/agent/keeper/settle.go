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

// settle makes what is served what a record says, whatever it is now: the verbs
// end in it, and so do start and the reconciler. Those being revoked are out, and
// drained, before they are forgotten (I9): a settle that fails has forgotten
// nobody. o is the volume's object, zero if it has none. The volume's lock is
// held.
func (k *Keeper) settle(ctx context.Context, p *pool, r record, o store.Object) (changed bool, err error) {
	x := p.exporter(r.transport())
	if x == nil {
		return false, p.noExporter(r.transport())
	}
	live := r.live()
	if len(live.pubs) == 0 {
		if err := k.unserve(ctx, p, x, r); err != nil {
			return false, err
		}
	} else if changed, err = k.serve(ctx, p, x, live, o); err != nil {
		return false, err
	}
	if len(live.pubs) == len(r.pubs) {
		return changed, nil
	}
	if err := k.journal.write(live); err != nil {
		return changed, err
	}
	faultpoint.Here("keeper.settle.forgotten")
	return changed, nil
}

// serve exports a volume to exactly those that r names.
func (k *Keeper) serve(ctx context.Context, p *pool, x export.Exporter, r record, o store.Object) (bool, error) {
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

// unserve ends a volume's export.
func (k *Keeper) unserve(ctx context.Context, p *pool, x export.Exporter, r record) error {
	if err := x.Remove(ctx, r.volume, r.identity); err != nil {
		return err
	}
	faultpoint.Here("keeper.settle.removed")
	if err := p.store.Deactivate(ctx, r.volume.Object); ifThere(err) != nil {
		return err
	}
	faultpoint.Here("keeper.settle.deactivated")
	return nil
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
