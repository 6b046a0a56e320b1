package memory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// CreateVolume makes a volume, or finds it.
func (v *view) CreateVolume(ctx context.Context, r backend.CreateVolume) (backend.Volume, error) {
	end, err := v.begin(ctx)
	if err != nil {
		return backend.Volume{}, err
	}
	defer end()
	if err := r.Check(); err != nil {
		return backend.Volume{}, err
	}
	object := backend.ObjectName(backend.VolumeObject, v.tenant, r.Name)
	for _, p := range v.s.cfg.Pools {
		if vol := v.s.volumes[backend.ID{Pool: p.Name, Object: object}]; vol != nil {
			return vol.again(r)
		}
	}
	return v.make(r, backend.ID{Pool: r.Pool, Object: object})
}

// again compares a volume with what is asked for.
func (vol *volume) again(r backend.CreateVolume) (backend.Volume, error) {
	if vol.ID.Pool != r.Pool || vol.Source != r.Source || !r.Size.Holds(vol.Size) {
		return backend.Volume{}, fmt.Errorf("volume %q, %d bytes in pool %s: %w", vol.Name, vol.Size, vol.ID.Pool, backend.ErrConflict)
	}
	return vol.value(), nil
}

// make adds a volume.
func (v *view) make(r backend.CreateVolume, id backend.ID) (backend.Volume, error) {
	pool, err := v.s.pool(r.Pool)
	if err != nil {
		return backend.Volume{}, err
	}
	source, errSource := v.source(r.Source, pool)
	size, errSize := pool.Fit(r.Size, source)
	if err := errors.Join(errSource, errSize); err != nil {
		return backend.Volume{}, err
	}
	if room := v.s.room(pool) - v.s.used(pool.Name); size > room {
		return backend.Volume{}, fmt.Errorf("pool %s has room for %d bytes, not %d: %w", pool.Name, room, size, backend.ErrNoSpace)
	}
	vol := &volume{tenant: v.tenant, nodes: make(map[string]*publication), Volume: backend.Volume{
		ID: id, Name: r.Name, Size: size, Source: r.Source, Content: backend.ContentBlank,
		Identity: random(16), Created: v.s.cfg.Now().Truncate(time.Second),
	}}
	if !r.Source.IsZero() {
		vol.Content = backend.ContentCopy
	}
	vol.tune(r.Tunables)
	v.s.volumes[id] = vol
	return vol.value(), nil
}

// source is the size of what a volume shall be a copy of, 0 for none.
func (v *view) source(from backend.Source, pool backend.Pool) (int64, error) {
	switch {
	case from.IsZero():
		return 0, nil
	case !pool.Snapshots:
		return 0, fmt.Errorf("pool %s makes no copies: %w", pool.Name, backend.ErrUnsupported)
	case (from.Volume.Pool + from.Snapshot.Pool) != pool.Name:
		return 0, fmt.Errorf("a copy from another pool than %s: %w", pool.Name, backend.ErrUnsupported)
	case !from.Snapshot.IsZero():
		s, err := v.snapshot(from.Snapshot)
		if err != nil {
			return 0, err
		}
		return s.Size, nil
	}
	vol, err := v.volume(from.Volume)
	if err != nil {
		return 0, err
	}
	return vol.Size, vol.quiet(pool)
}

// quiet refuses to copy a volume that is being written to, in pools that cannot.
func (vol *volume) quiet(pool backend.Pool) error {
	for _, p := range vol.some("") {
		if !pool.SnapshotsInUse {
			return &backend.InUse{Object: "volume " + vol.ID.String(), Node: p.Node, Why: "unpublish it to copy it"}
		}
	}
	return nil
}

// Volume finds a volume.
func (v *view) Volume(ctx context.Context, id backend.ID) (backend.Volume, error) {
	end, err := v.begin(ctx)
	if err != nil {
		return backend.Volume{}, err
	}
	defer end()
	vol, err := v.volume(id)
	if err != nil {
		return backend.Volume{}, err
	}
	return vol.value(), nil
}

// DeleteVolume removes a volume.
func (v *view) DeleteVolume(ctx context.Context, id backend.ID) error {
	end, err := v.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	vol, err := v.volume(id)
	if err != nil {
		return absent(err)
	}
	for _, p := range vol.some("") {
		return &backend.InUse{Object: "volume " + id.String(), Node: p.Node, Why: "unpublish it first"}
	}
	delete(v.s.volumes, id)
	return nil
}

// ExpandVolume makes a volume longer.
func (v *view) ExpandVolume(ctx context.Context, id backend.ID, size backend.Size) (backend.Volume, error) {
	end, err := v.begin(ctx)
	if err != nil {
		return backend.Volume{}, err
	}
	defer end()
	if err := size.Check(); err != nil {
		return backend.Volume{}, err
	}
	vol, err := v.volume(id)
	if err != nil {
		return backend.Volume{}, err
	}
	if vol.Size >= size.Required {
		return vol.value(), nil
	}
	pool, err := v.s.pool(id.Pool)
	if err != nil {
		return backend.Volume{}, err
	}
	to, err := pool.Fit(size, 0)
	if err != nil {
		return backend.Volume{}, err
	}
	if room := v.s.room(pool) - v.s.used(pool.Name); to-vol.Size > room {
		return backend.Volume{}, fmt.Errorf("pool %s has room for %d bytes, not %d: %w", pool.Name, room, to-vol.Size, backend.ErrNoSpace)
	}
	vol.Size = to
	return vol.value(), nil
}

// TuneVolume replaces a volume's tunables.
func (v *view) TuneVolume(ctx context.Context, id backend.ID, tunables map[string]string) (backend.Volume, error) {
	end, err := v.begin(ctx)
	if err != nil {
		return backend.Volume{}, err
	}
	defer end()
	if err := backend.CheckTunables(tunables); err != nil {
		return backend.Volume{}, err
	}
	vol, err := v.volume(id)
	if err != nil {
		return backend.Volume{}, err
	}
	vol.tune(tunables)
	return vol.value(), nil
}

// tune counts changes.
func (vol *volume) tune(t map[string]string) {
	if !maps.Equal(vol.Tunables, t) {
		vol.Tunables = maps.Clone(t)
		vol.Generation++
	}
}

// Volumes lists this tenant's volumes.
func (v *view) Volumes(ctx context.Context, page backend.Page) ([]backend.Volume, string, error) {
	end, err := v.begin(ctx)
	if err != nil {
		return nil, "", err
	}
	defer end()
	var all []backend.Volume
	for _, vol := range v.mine() {
		all = append(all, vol.value())
	}
	return backend.Cut(all, func(vol backend.Volume) backend.Key { return backend.Key{ID: vol.ID} }, page)
}

// mine are this tenant's volumes, in their order.
func (v *view) mine() []*volume {
	var out []*volume
	for _, id := range slices.SortedFunc(maps.Keys(v.s.volumes), order) {
		if vol := v.s.volumes[id]; vol.tenant == v.tenant {
			out = append(out, vol)
		}
	}
	return out
}

// order sorts IDs.
func order(a, b backend.ID) int {
	switch {
	case a.Less(b):
		return -1
	case b.Less(a):
		return 1
	}
	return 0
}

// Capacity is what a pool has room for.
func (v *view) Capacity(ctx context.Context, pool string) (backend.Capacity, error) {
	end, err := v.begin(ctx)
	if err != nil {
		return backend.Capacity{}, err
	}
	defer end()
	p, err := v.s.pool(pool)
	if err != nil {
		return backend.Capacity{}, errors.Join(err, backend.CheckPool(pool))
	}
	room, used := v.s.room(p), v.s.used(pool)
	most := room - used
	if p.Max > 0 {
		most = min(most, p.Max)
	}
	return backend.Capacity{Available: room - used, MaxVolume: most - most%max(p.Step, 1), MinVolume: p.Min, Total: room, Used: used}, nil
}

// room is what a pool holds.
func (s *Storage) room(p backend.Pool) int64 {
	if r, ok := s.cfg.Room[p.Name]; ok {
		return r
	}
	return defaultRoom
}

// used is what all tenants have of a pool.
func (s *Storage) used(pool string) int64 {
	var sum int64
	for id, vol := range s.volumes {
		if id.Pool == pool {
			sum += vol.Size
		}
	}
	return sum
}
