package keeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// pool is a Pool that was checked.
type pool struct {
	name     string
	store    store.Store
	exports  []export.Exporter
	features store.Features
	info     backend.Pool
}

// nobody is the identity of no volume.
var nobody = strings.Repeat("0", 32)

// openPools checks the configuration.
func (k *Keeper) openPools(ctx context.Context) error {
	k.pools = map[string]*pool{}
	for _, c := range k.cfg.Pools {
		if err := backend.CheckPool(c.Name); err != nil {
			return err
		}
		if k.pools[c.Name] != nil {
			return fmt.Errorf("%w: two pools named %s", backend.ErrInvalid, c.Name)
		}
		p, err := newPool(ctx, c)
		if err != nil {
			return err
		}
		k.pools[c.Name] = p
		k.order = append(k.order, p)
		for _, x := range p.exports {
			if !slices.Contains(k.exporters, x) {
				k.exporters = append(k.exporters, x)
			}
		}
	}
	slices.SortFunc(k.order, func(a, b *pool) int { return strings.Compare(a.name, b.name) })
	return nil
}

func newPool(ctx context.Context, c Pool) (*pool, error) {
	f := c.Store.Features()
	p := &pool{name: c.Name, store: c.Store, exports: c.Exports, features: f}
	p.info = backend.Pool{Name: c.Name, Kind: c.Store.Kind(), Snapshots: f.Snapshots, SnapshotsInUse: f.Snapshots,
		Thin: f.Thin, Step: f.Step, Min: f.Min, Max: f.Max}
	for _, x := range c.Exports {
		if slices.Contains(p.info.Transports, x.Transport()) {
			return nil, fmt.Errorf("%w: pool %s is exported twice over %s", backend.ErrInvalid, c.Name, x.Transport())
		}
		p.info.Transports = append(p.info.Transports, x.Transport())
		if f.Snapshots && !f.AtomicSnapshots && !quiesces(ctx, x) {
			p.info.SnapshotsInUse = false
		}
	}
	return p, nil
}

// quiesces reports whether an exporter can hold back writes at all.
func quiesces(ctx context.Context, x export.Exporter) bool {
	resume, err := x.Quiesce(ctx, nobody)
	if err == nil {
		resume()
	}
	return !errors.Is(err, backend.ErrUnsupported)
}

// exporter of a transport, nil if the pool has none.
func (p *pool) exporter(t backend.Transport) export.Exporter {
	for _, x := range p.exports {
		if x.Transport() == t {
			return x
		}
	}
	return nil
}

// pool that an object would be in.
func (k *Keeper) pool(ctx context.Context, what string, id backend.ID) (*pool, error) {
	if err := errors.Join(id.Check(), ctx.Err()); err != nil {
		return nil, err
	}
	if p := k.pools[id.Pool]; p != nil {
		return p, nil
	}
	if r, err := k.journal.get(id); err != nil || len(r.pubs) > 0 {
		// "There is no such thing" would count as revoked (I9), and it may be served.
		return nil, errors.Join(fmt.Errorf("%w: pool %s of %s %s is not configured any more, and the volume is published: configure the pool again", backend.ErrUnavailable, id.Pool, what, id), err)
	}
	return nil, notFound(what, id)
}

// ours reports whether a name is one of those we give to volumes or snapshots.
func ours(what, object string) bool {
	kind := backend.VolumeObject
	if what == snapshot {
		kind = backend.SnapshotObject
	}
	return strings.HasPrefix(object, kind+"-")
}

// object is the tenant's volume or snapshot, ErrNotFound if it has none of that
// kind and name.
func (v *view) object(ctx context.Context, p *pool, what string, id backend.ID) (store.Object, error) {
	o, err := p.store.Object(ctx, id.Object)
	if errors.Is(err, backend.ErrNotFound) || (err == nil && !v.sees(o, what)) {
		return store.Object{}, notFound(what, id)
	}
	if err != nil {
		return store.Object{}, err
	}
	return o, nil
}

// What objects are called.
const (
	volume   = "volume"
	snapshot = "snapshot"
)

// sees reports whether an object is the tenant's, and a volume or snapshot.
func (v *view) sees(o store.Object, what string) bool {
	return o.Labels.Tenant == v.tenant && ours(what, o.Name) && o.ReadOnly == (what == snapshot)
}

// objects are all of the tenant's volumes or snapshots, in the order of IDs.
func (v *view) objects(ctx context.Context, what string, keep func(store.Object) bool) ([]placed, error) {
	var out []placed
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, p := range v.k.order {
		all, err := p.store.Objects(ctx)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", p.name, err)
		}
		for _, o := range all {
			if v.sees(o, what) && keep(o) {
				out = append(out, placed{backend.ID{Pool: p.name, Object: o.Name}, o})
			}
		}
	}
	return out, nil
}

// placed is an object, and where it is.
type placed struct {
	id backend.ID
	store.Object
}

// Capacity implements backend.Backend.
func (v *view) Capacity(ctx context.Context, name string) (backend.Capacity, error) {
	if err := errors.Join(backend.CheckPool(name), ctx.Err()); err != nil {
		return backend.Capacity{}, err
	}
	p := v.k.pools[name]
	if p == nil {
		return backend.Capacity{}, fmt.Errorf("%w: pool %s", backend.ErrNotFound, name)
	}
	u, err := p.store.Usage(ctx)
	if err != nil {
		return backend.Capacity{}, err
	}
	c := backend.Capacity{Available: u.Available, MaxVolume: u.MaxObject, MinVolume: p.features.Min, Total: u.Total, Used: u.Used}
	if p.features.Max > 0 {
		c.MaxVolume = min(c.MaxVolume, p.features.Max)
	}
	if u.Filling || u.Full {
		c.Available, c.MaxVolume = 0, 0
	}
	return c, nil
}
