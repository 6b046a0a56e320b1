// Package memory is a backend in memory: slow, obvious, with one lock, and no
// bytes. It is the model that other backends are compared with, and what stands
// in for one where nothing is read or written.
//
// Where several things are wrong with a request, its error is all of them: which
// one a backend finds first is its own business.
package memory

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Config says what the storage is.
type Config struct {
	Pools []backend.Pool
	// Room is what each pool holds, bytes: the sum of its volumes' sizes.
	Room map[string]int64
	// Portals of each transport.
	Portals map[backend.Transport][]backend.Portal
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Storage is what all tenants share. One lock guards everything.
type Storage struct {
	cfg Config

	mu        sync.Mutex
	volumes   map[backend.ID]*volume
	snapshots map[backend.ID]*snapshot
	fenced    map[host]bool
	watchers  map[*watcher]bool
}

// host is a node of a tenant's cluster.
type host struct{ tenant, node string }

// volume is a volume and who has it.
type volume struct {
	backend.Volume
	tenant string
	nodes  map[string]*publication
}

// publication is one node's access.
type publication struct {
	backend.Publication
	asked backend.Publish
}

// snapshot is a snapshot.
type snapshot struct {
	backend.Snapshot
	tenant string
}

// New makes storage without volumes.
func New(c Config) *Storage {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Storage{
		cfg:       c,
		volumes:   make(map[backend.ID]*volume),
		snapshots: make(map[backend.ID]*snapshot),
		fenced:    make(map[host]bool),
		watchers:  make(map[*watcher]bool),
	}
}

// For is the storage as one tenant sees it.
func (s *Storage) For(tenant string) backend.Backend { return &view{s: s, tenant: tenant} }

// view is a tenant's.
type view struct {
	s      *Storage
	tenant string
}

// begin takes the lock for one call.
func (v *view) begin(ctx context.Context) (end func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	v.s.mu.Lock()
	return v.s.mu.Unlock, nil
}

// Info says what the storage is.
func (v *view) Info(ctx context.Context) (backend.Info, error) {
	return backend.Info{Kind: "memory", Version: "1", Boot: "memory", Pools: slices.Clone(v.s.cfg.Pools)}, ctx.Err()
}

// pool finds a pool.
func (s *Storage) pool(name string) (backend.Pool, error) {
	for _, p := range s.cfg.Pools {
		if p.Name == name {
			return p, nil
		}
	}
	return backend.Pool{}, fmt.Errorf("pool %s: %w", name, backend.ErrNotFound)
}

// volume finds this tenant's volume.
func (v *view) volume(id backend.ID) (*volume, error) {
	if vol := v.s.volumes[id]; vol != nil && vol.tenant == v.tenant {
		return vol, nil
	}
	return nil, missing("volume", id)
}

// snapshot finds this tenant's snapshot.
func (v *view) snapshot(id backend.ID) (*snapshot, error) {
	if s := v.s.snapshots[id]; s != nil && s.tenant == v.tenant {
		return s, nil
	}
	return nil, missing("snapshot", id)
}

// missing is ErrNotFound, or ErrInvalid for what is no ID.
func missing(what string, id backend.ID) error {
	if err := id.Check(); err != nil {
		return err
	}
	return fmt.Errorf("%s %s: %w", what, id, backend.ErrNotFound)
}

// absent is the error of a removal that found nothing: none, for an ID.
func absent(err error) error {
	if errors.Is(err, backend.ErrNotFound) {
		return nil
	}
	return err
}

// value is the volume as callers see it.
func (vol *volume) value() backend.Volume {
	out := vol.Volume
	out.Tunables = maps.Clone(out.Tunables)
	return out
}

// some are the publications, those of node if that is not empty, by name.
func (vol *volume) some(node string) []*publication {
	var out []*publication
	for _, n := range slices.Sorted(maps.Keys(vol.nodes)) {
		if node == "" || n == node {
			out = append(out, vol.nodes[n])
		}
	}
	return out
}

// random are n random bytes in hexadecimal.
func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
