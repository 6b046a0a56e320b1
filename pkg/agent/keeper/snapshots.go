package keeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
)

// CreateSnapshot implements backend.Backend.
func (v *view) CreateSnapshot(ctx context.Context, r backend.CreateSnapshot) (backend.Snapshot, error) {
	if err := errors.Join(r.Check(), v.check()); err != nil {
		return backend.Snapshot{}, err
	}
	id := backend.ID{Pool: r.Of.Pool, Object: backend.ObjectName(backend.SnapshotObject, v.tenant, r.Name)}
	unlock, err := v.k.locks.verb(ctx, "snapshot "+id.String(), id.Object, r.Of.Object)
	if err != nil {
		return backend.Snapshot{}, err
	}
	defer unlock()
	old, err := v.named(ctx, snapshot, id.Object)
	switch {
	case err != nil:
		return backend.Snapshot{}, err
	case old == nil:
		return v.snap(ctx, r, id)
	case old.Labels.Source != r.Of:
		return backend.Snapshot{}, fmt.Errorf("%w: snapshot %s, named %q, is of volume %s: take another name", backend.ErrConflict, old.id, r.Name, old.Labels.Source)
	}
	return old.snapshot(), nil
}

// snap makes a snapshot; its lock, and that of its volume, are held.
func (v *view) snap(ctx context.Context, r backend.CreateSnapshot, id backend.ID) (backend.Snapshot, error) {
	of, err := v.find(ctx, volume, r.Of)
	if err != nil {
		return backend.Snapshot{}, err
	}
	p := v.k.pools[id.Pool]
	if !p.features.Snapshots {
		return backend.Snapshot{}, fmt.Errorf("%w: pool %s makes no snapshots", backend.ErrUnsupported, p.name)
	}
	spec := store.Spec{Name: id.Object, Size: of.Size, Source: r.Of.Object, ReadOnly: true}
	if spec.Labels, err = v.labels(r.Name); err != nil {
		return backend.Snapshot{}, err
	}
	spec.Labels.Source = r.Of
	o, err := v.make(ctx, p, spec, "snapshot")
	if err != nil {
		return backend.Snapshot{}, err
	}
	return placed{id, o}.snapshot(), nil
}

// snapshot is an object as callers see it.
func (o placed) snapshot() backend.Snapshot {
	return backend.Snapshot{ID: o.id, Name: o.Labels.Name, Of: o.Labels.Source, Size: o.Size, Created: o.Labels.Created}
}

// Snapshot implements backend.Backend.
func (v *view) Snapshot(ctx context.Context, id backend.ID) (backend.Snapshot, error) {
	o, err := v.find(ctx, snapshot, id)
	if err != nil {
		return backend.Snapshot{}, err
	}
	return o.snapshot(), nil
}

// Snapshots implements backend.Backend.
func (v *view) Snapshots(ctx context.Context, of backend.ID, page backend.Page) ([]backend.Snapshot, string, error) {
	all, err := v.objects(ctx, snapshot, func(o store.Object) bool { return of.IsZero() || o.Labels.Source == of })
	if err != nil {
		return nil, "", err
	}
	some, next, err := backend.Cut(all, placed.key, page)
	out := make([]backend.Snapshot, 0, len(some))
	for _, o := range some {
		out = append(out, o.snapshot())
	}
	return out, next, err
}

// DeleteSnapshot implements backend.Backend.
func (v *view) DeleteSnapshot(ctx context.Context, id backend.ID) error {
	p, unlock, err := v.forRemoval(ctx, snapshot, id)
	if p == nil || err != nil {
		return err
	}
	defer unlock()
	o, err := p.store.Object(ctx, id.Object)
	if ifThere(err) != nil || (err == nil && !v.sees(o, snapshot)) {
		return ifThere(err)
	}
	if err := p.store.Delete(ctx, id.Object); err != nil {
		return err
	}
	faultpoint.Here("keeper.unsnapshot.deleted")
	return nil
}

// quiesce holds back the writers of an object until resume, where its store makes
// no copy of what is being written to.
func (k *Keeper) quiesce(ctx context.Context, p *pool, object string) (resume func(), err error) {
	id := backend.ID{Pool: p.name, Object: object}
	r, err := k.journal.get(id)
	if err != nil {
		return nil, err
	}
	if p.features.AtomicSnapshots || len(r.pubs) == 0 {
		return func() {}, nil
	}
	x := p.exporter(r.transport())
	if x == nil {
		return nil, p.noExporter(r.transport())
	}
	resume, err = x.Quiesce(ctx, r.identity)
	if errors.Is(err, backend.ErrUnsupported) {
		why := fmt.Sprintf("pool %s copies no volume that is published over %s by %s: unpublish it first, or use the embedded export or thin LVM", p.name, r.transport(), x.Kind())
		return nil, &backend.InUse{Object: "volume " + id.String(), Node: r.pubs[0].node, Why: why}
	}
	return resume, err
}
