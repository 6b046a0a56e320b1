package keeper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
)

// CreateVolume implements backend.Backend.
func (v *view) CreateVolume(ctx context.Context, r backend.CreateVolume) (backend.Volume, error) {
	if err := errors.Join(r.Check(), v.check()); err != nil {
		return backend.Volume{}, err
	}
	p := v.k.pools[r.Pool]
	if p == nil {
		return backend.Volume{}, fmt.Errorf("%w: pool %s", backend.ErrNotFound, r.Pool)
	}
	id := backend.ID{Pool: r.Pool, Object: backend.ObjectName(backend.VolumeObject, v.tenant, r.Name)}
	keys := []string{id.Object}
	if !r.Source.IsZero() {
		keys = append(keys, sourceID(r.Source).Object)
	}
	unlock, err := v.k.locks.verb(ctx, "volume "+id.String(), keys...)
	if err != nil {
		return backend.Volume{}, err
	}
	defer unlock()
	old, err := v.named(ctx, volume, id.Object)
	if err != nil {
		return backend.Volume{}, err
	}
	if old != nil {
		return v.createdBefore(r, *old)
	}
	return v.create(ctx, p, r, id)
}

func sourceID(s backend.Source) backend.ID {
	if !s.Volume.IsZero() {
		return s.Volume
	}
	return s.Snapshot
}

// named is the tenant's object of that name in any pool, nil if there is none: a
// name is taken in all pools.
func (v *view) named(ctx context.Context, what, object string) (*placed, error) {
	for _, p := range v.k.order {
		id := backend.ID{Pool: p.name, Object: object}
		o, err := v.object(ctx, p, what, id)
		if err == nil {
			return &placed{id, o}, nil
		}
		if ifThere(err) != nil {
			return nil, err
		}
	}
	return nil, nil
}

// createdBefore compares what there is with what is asked for.
func (v *view) createdBefore(r backend.CreateVolume, old placed) (backend.Volume, error) {
	if have := source(old.Labels); old.id.Pool != r.Pool || have != r.Source || !r.Size.Holds(old.Size) {
		return backend.Volume{}, fmt.Errorf("%w: volume %s, named %q, has %d bytes, source %q: take another name", backend.ErrConflict, old.id, r.Name, old.Size, sourceID(have))
	}
	return v.volume(old), nil
}

// create makes the object; its lock, and that of its source, are held.
func (v *view) create(ctx context.Context, p *pool, r backend.CreateVolume, id backend.ID) (backend.Volume, error) {
	if err := v.noRecord(id); err != nil {
		return backend.Volume{}, err
	}
	spec := store.Spec{Name: id.Object}
	var from store.Object
	var err error
	if !r.Source.IsZero() {
		if from, err = v.source(ctx, p, r.Source); err != nil {
			return backend.Volume{}, err
		}
		spec.Source = from.Name
	}
	if spec.Size, err = p.info.Fit(r.Size, from.Size); err != nil {
		return backend.Volume{}, err
	}
	if spec.Labels, err = v.labels(r.Name); err != nil {
		return backend.Volume{}, err
	}
	spec.Labels.Source, spec.Labels.SourceSnapshot = sourceID(r.Source), !r.Source.Snapshot.IsZero()
	if len(r.Tunables) > 0 {
		spec.Labels.Tunables, spec.Labels.Generation = maps.Clone(r.Tunables), 1
	}
	o, err := v.make(ctx, p, spec, "create")
	if err != nil {
		return backend.Volume{}, err
	}
	return v.volume(placed{id, o}), nil
}

// make has the store make an object, while nobody writes to its source if the
// store needs that.
func (v *view) make(ctx context.Context, p *pool, spec store.Spec, verb string) (store.Object, error) {
	if spec.Source != "" {
		resume, err := v.k.quiesce(ctx, p, spec.Source)
		if err != nil {
			return store.Object{}, err
		}
		defer resume()
		faultpoint.Here("keeper." + verb + ".quiesced")
	}
	o, err := p.store.Create(ctx, spec)
	if err != nil {
		return store.Object{}, err
	}
	faultpoint.Here("keeper." + verb + ".stored")
	return o, nil
}

// noRecord refuses to make a volume that the journal says somebody has: it lost
// its bytes behind our back, and the new one's must not appear in their place.
func (v *view) noRecord(id backend.ID) error {
	r, err := v.k.journal.get(id)
	if err != nil || len(r.pubs) == 0 {
		return err
	}
	return &backend.InUse{Object: "volume " + id.String(), Node: r.pubs[0].node, Why: "an earlier volume of this name vanished while it was published: unpublish it first"}
}

// source is what a copy is made of.
func (v *view) source(ctx context.Context, p *pool, s backend.Source) (store.Object, error) {
	id, what := sourceID(s), volume
	if !s.Snapshot.IsZero() {
		what = snapshot
	}
	switch {
	case !p.features.Snapshots:
		return store.Object{}, fmt.Errorf("%w: pool %s makes no copies", backend.ErrUnsupported, p.name)
	case id.Pool != p.name:
		return store.Object{}, fmt.Errorf("%w: a copy of %s in another pool, %s", backend.ErrUnsupported, id, p.name)
	}
	return v.object(ctx, p, what, id)
}

// labels of a new object.
func (v *view) labels(name string) (store.Labels, error) {
	identity, err := newRandom(v.k.random)
	return store.Labels{Tenant: v.tenant, Name: name, Identity: identity, Created: time.Now().UTC().Truncate(time.Second)}, err
}

// source of an object, from its labels.
func source(l store.Labels) backend.Source {
	if l.SourceSnapshot {
		return backend.Source{Snapshot: l.Source}
	}
	return backend.Source{Volume: l.Source}
}

// volume is an object as callers see it.
func (v *view) volume(o placed) backend.Volume {
	l := o.Labels
	return backend.Volume{ID: o.id, Name: l.Name, Size: o.Size, Source: source(l), Content: v.k.content(o), Identity: l.Identity,
		Created: l.Created, Tunables: maps.Clone(l.Tunables), Generation: l.Generation}
}

// content is what is known of a volume's bytes (I7). Blank is only what nobody
// may write to.
func (k *Keeper) content(o placed) backend.Content {
	if !source(o.Labels).IsZero() {
		return backend.ContentCopy
	}
	if o.Content != backend.ContentBlank {
		return o.Content
	}
	r, err := k.journal.get(o.id)
	if err != nil {
		return backend.ContentUnknown
	}
	for _, p := range r.pubs {
		if !p.readOnly {
			return backend.ContentUnknown
		}
	}
	return backend.ContentBlank
}

// Volume implements backend.Backend.
func (v *view) Volume(ctx context.Context, id backend.ID) (backend.Volume, error) {
	o, err := v.find(ctx, volume, id)
	if err != nil {
		return backend.Volume{}, err
	}
	return v.volume(o), nil
}

// find is object without a pool.
func (v *view) find(ctx context.Context, what string, id backend.ID) (placed, error) {
	p, err := v.k.pool(ctx, what, id)
	if err != nil {
		return placed{}, err
	}
	o, err := v.object(ctx, p, what, id)
	return placed{id, o}, err
}

// Volumes implements backend.Backend.
func (v *view) Volumes(ctx context.Context, page backend.Page) ([]backend.Volume, string, error) {
	all, err := v.objects(ctx, volume, func(store.Object) bool { return true })
	if err != nil {
		return nil, "", err
	}
	some, next, err := backend.Cut(all, placed.key, page)
	out := make([]backend.Volume, 0, len(some))
	for _, o := range some {
		out = append(out, v.volume(o))
	}
	return out, next, err
}

func (o placed) key() backend.Key { return backend.Key{ID: o.id} }

// DeleteVolume implements backend.Backend.
func (v *view) DeleteVolume(ctx context.Context, id backend.ID) error {
	p, unlock, err := v.forRemoval(ctx, volume, id)
	if p == nil || err != nil {
		return err
	}
	defer unlock()
	r, err := v.k.journal.get(id)
	if err != nil {
		return err
	}
	if len(r.pubs) > 0 && r.tenant == v.tenant {
		return &backend.InUse{Object: "volume " + id.String(), Node: r.pubs[0].node, Why: "unpublish it first"}
	}
	o, err := p.store.Object(ctx, id.Object)
	switch {
	case errors.Is(err, backend.ErrNotFound):
		return p.store.Delete(ctx, id.Object) // a creation or removal that was cut short
	case err != nil || !v.sees(o, volume):
		return err
	}
	return v.k.delete(ctx, p, id, o.Labels.Identity)
}

// forRemoval locks what is to be removed; no pool: there cannot be such a thing.
// What a pool has that is not configured any more would count as removed, and keep
// its space for ever.
func (v *view) forRemoval(ctx context.Context, what string, id backend.ID) (p *pool, unlock func(), err error) {
	p, err = v.k.pool(ctx, what, id)
	if ifThere(err) != nil || !ours(what, id.Object) {
		return nil, nil, ifThere(err)
	}
	if p == nil {
		return nil, nil, fmt.Errorf("%s %s: %w: %s: configure it again, or remove by hand what it has and then the object that asks for this", what, id, backend.ErrNoPool, id.Pool)
	}
	unlock, err = v.k.locks.verb(ctx, what+" "+id.String(), id.Object)
	return p, unlock, err
}

// delete removes a volume that nobody has. What an agent without its journal
// still serves goes first.
func (k *Keeper) delete(ctx context.Context, p *pool, id backend.ID, identity string) error {
	if err := p.unexport(ctx, id, identity); err != nil {
		return err
	}
	faultpoint.Here("keeper.delete.unexported")
	if err := p.store.Deactivate(ctx, id.Object); ifThere(err) != nil {
		return err
	}
	faultpoint.Here("keeper.delete.deactivated")
	if err := p.store.Delete(ctx, id.Object); err != nil {
		return err
	}
	faultpoint.Here("keeper.delete.deleted")
	return nil
}

// unexport ends whatever serves a volume.
func (p *pool) unexport(ctx context.Context, id backend.ID, identity string) error {
	for _, x := range p.exports {
		if err := x.Remove(ctx, id, identity); err != nil {
			return err
		}
	}
	return nil
}

// hold locks the tenant's volume.
func (v *view) hold(ctx context.Context, id backend.ID) (p *pool, o store.Object, unlock func(), err error) {
	if p, err = v.k.pool(ctx, volume, id); err != nil {
		return nil, o, nil, err
	}
	if unlock, err = v.k.locks.verb(ctx, "volume "+id.String(), id.Object); err != nil {
		return nil, o, nil, err
	}
	if o, err = v.object(ctx, p, volume, id); err != nil {
		unlock()
		return nil, o, nil, err
	}
	return p, o, unlock, nil
}

// ExpandVolume implements backend.Backend.
func (v *view) ExpandVolume(ctx context.Context, id backend.ID, size backend.Size) (backend.Volume, error) {
	if err := size.Check(); err != nil {
		return backend.Volume{}, err
	}
	p, o, unlock, err := v.hold(ctx, id)
	if err != nil {
		return backend.Volume{}, err
	}
	defer unlock()
	r, err := v.k.journal.get(id)
	if err != nil {
		return backend.Volume{}, err
	}
	if o.Size < size.Required {
		to, err := p.info.Fit(size, 0)
		if err != nil {
			return backend.Volume{}, err
		}
		if o, err = p.store.Expand(ctx, id.Object, to); err != nil {
			return backend.Volume{}, err
		}
		faultpoint.Here("keeper.expand.grown")
	}
	// Also if it was long enough: the call that made it so may not have come here.
	if err := v.k.tell(ctx, p, r, o); err != nil {
		return backend.Volume{}, err
	}
	faultpoint.Here("keeper.expand.told")
	return v.volume(placed{id, o}), nil
}

// TuneVolume implements backend.Backend.
func (v *view) TuneVolume(ctx context.Context, id backend.ID, tunables map[string]string) (backend.Volume, error) {
	if err := backend.CheckTunables(tunables); err != nil {
		return backend.Volume{}, err
	}
	p, o, unlock, err := v.hold(ctx, id)
	if err != nil {
		return backend.Volume{}, err
	}
	defer unlock()
	if !maps.Equal(o.Labels.Tunables, tunables) {
		l := o.Labels
		l.Tunables, l.Generation = maps.Clone(tunables), l.Generation+1
		if o, err = p.store.Label(ctx, id.Object, l); err != nil {
			return backend.Volume{}, err
		}
		faultpoint.Here("keeper.tune.labelled")
	}
	return v.volume(placed{id, o}), nil
}
