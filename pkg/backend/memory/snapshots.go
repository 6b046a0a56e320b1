package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// CreateSnapshot makes a snapshot, or finds it.
func (v *view) CreateSnapshot(ctx context.Context, r backend.CreateSnapshot) (backend.Snapshot, error) {
	end, err := v.begin(ctx)
	if err != nil {
		return backend.Snapshot{}, err
	}
	defer end()
	if err := r.Check(); err != nil {
		return backend.Snapshot{}, err
	}
	object := backend.ObjectName(backend.SnapshotObject, v.tenant, r.Name)
	for _, p := range v.s.cfg.Pools {
		s := v.s.snapshots[backend.ID{Pool: p.Name, Object: object}]
		switch {
		case s != nil && s.Of == r.Of:
			return s.Snapshot, nil
		case s != nil:
			return backend.Snapshot{}, fmt.Errorf("snapshot %q is of %s: %w", r.Name, s.Of, backend.ErrConflict)
		}
	}
	return v.snap(r, object)
}

// snap adds a snapshot.
func (v *view) snap(r backend.CreateSnapshot, object string) (backend.Snapshot, error) {
	vol, err := v.volume(r.Of)
	if err != nil {
		return backend.Snapshot{}, err
	}
	pool, err := v.s.pool(r.Of.Pool)
	if err == nil && !pool.Snapshots {
		err = fmt.Errorf("pool %s makes no snapshots: %w", pool.Name, backend.ErrUnsupported)
	}
	if err == nil {
		err = vol.quiet(pool)
	}
	if err != nil {
		return backend.Snapshot{}, err
	}
	s := &snapshot{tenant: v.tenant, Snapshot: backend.Snapshot{
		ID: backend.ID{Pool: pool.Name, Object: object}, Name: r.Name, Of: r.Of, Size: vol.Size,
		Created: v.s.cfg.Now().Truncate(time.Second),
	}}
	v.s.snapshots[s.ID] = s
	return s.Snapshot, nil
}

// Snapshot finds a snapshot.
func (v *view) Snapshot(ctx context.Context, id backend.ID) (backend.Snapshot, error) {
	end, err := v.begin(ctx)
	if err != nil {
		return backend.Snapshot{}, err
	}
	defer end()
	s, err := v.snapshot(id)
	if err != nil {
		return backend.Snapshot{}, err
	}
	return s.Snapshot, nil
}

// DeleteSnapshot removes a snapshot.
func (v *view) DeleteSnapshot(ctx context.Context, id backend.ID) error {
	end, err := v.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if _, err := v.snapshot(id); err != nil {
		return absent(err)
	}
	delete(v.s.snapshots, id)
	return nil
}

// Snapshots lists this tenant's snapshots, or those of one volume.
func (v *view) Snapshots(ctx context.Context, of backend.ID, page backend.Page) ([]backend.Snapshot, string, error) {
	end, err := v.begin(ctx)
	if err != nil {
		return nil, "", err
	}
	defer end()
	var all []backend.Snapshot
	for _, id := range slices.SortedFunc(maps.Keys(v.s.snapshots), order) {
		if s := v.s.snapshots[id]; s.tenant == v.tenant && (of.IsZero() || s.Of == of) {
			all = append(all, s.Snapshot)
		}
	}
	return backend.Cut(all, func(s backend.Snapshot) backend.Key { return backend.Key{ID: s.ID} }, page)
}
