// Package memory is a store for tests: what it knows lies in memory, the bytes of
// objects in files of a directory that the caller throws away. It is slow and
// obvious.
package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Config is what a store in memory pretends to be.
type Config struct {
	Dir   string // absolute, for the bytes
	Total int64  // bytes of the pool; 0 is 1 TiB
	// Snapshots and AtomicSnapshots are as in store.Features.
	Snapshots, AtomicSnapshots bool
}

// Store is a store in memory. One that is closed goes on as if it was opened
// again: what a restart of its agent does to a store on disk.
type Store struct {
	cfg Config

	mu      sync.Mutex
	objects map[string]store.Object
	others  int64
}

var _ store.Store = (*Store)(nil)

// New is an empty store.
func New(cfg Config) *Store {
	if cfg.Total == 0 {
		cfg.Total = 1 << 40
	}
	return &Store{cfg: cfg, objects: map[string]store.Object{}}
}

// Fill makes others take n bytes of the pool.
func (s *Store) Fill(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.others = n
}

// Kind is "memory".
func (s *Store) Kind() string { return "memory" }

// Features are what Config says.
func (s *Store) Features() store.Features {
	return store.Features{Snapshots: s.cfg.Snapshots, AtomicSnapshots: s.cfg.AtomicSnapshots, Step: step, Min: step, Max: maxObject}
}

// Close ends nothing.
func (s *Store) Close() error { return nil }

// Create makes an object, or finds it.
func (s *Store) Create(ctx context.Context, spec store.Spec) (store.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(spec.Check(), ctx.Err()); err != nil {
		return store.Object{}, err
	}
	if _, there := s.objects[spec.Name]; there {
		return s.object(spec.Name)
	}
	content, least, err := s.source(spec.Source)
	if err != nil {
		return store.Object{}, err
	}
	size, err := s.Features().Fit(spec.Size, least)
	if err == nil {
		err = s.usage().Admit("memory", size)
	}
	if err != nil {
		return store.Object{}, err
	}
	if err := os.WriteFile(s.path(spec.Name), content, 0o600); err != nil {
		return store.Object{}, err
	}
	if err := os.Truncate(s.path(spec.Name), size); err != nil {
		return store.Object{}, err
	}
	s.objects[spec.Name] = store.Object{Name: spec.Name, Size: size, ReadOnly: spec.ReadOnly, Labels: clone(spec.Labels)}
	return s.object(spec.Name)
}

// source reads what an object is to be a copy of.
func (s *Store) source(name string) (content []byte, size int64, err error) {
	switch {
	case name == "":
		return nil, 0, nil
	case !s.cfg.Snapshots:
		return nil, 0, fmt.Errorf("%w: snapshots of this store", backend.ErrUnsupported)
	}
	o, err := s.object(name)
	if err != nil {
		return nil, 0, err
	}
	content, err = os.ReadFile(s.path(name))
	return content, o.Size, err
}

// path wants a checked name.
func (s *Store) path(name string) string { return filepath.Join(s.cfg.Dir, name) }

func clone(l store.Labels) store.Labels {
	l.Tunables = maps.Clone(l.Tunables)
	return l
}

// object wants s.mu.
func (s *Store) object(name string) (store.Object, error) {
	if err := store.CheckName(name); err != nil {
		return store.Object{}, err
	}
	o, ok := s.objects[name]
	if !ok {
		return store.Object{}, fmt.Errorf("%w: object %s", backend.ErrNotFound, name)
	}
	written, err := anythingIn(s.path(name))
	o.Content, o.Taken, o.Labels = backend.ContentBlank, o.Size, clone(o.Labels)
	if written {
		o.Content = backend.ContentWritten
	}
	return o, err
}

// zeroes are what is compared at a time.
var zeroes [64 << 10]byte

// anythingIn reports whether a file is not all zero.
func anythingIn(path string) (bool, error) {
	f, err := os.Open(path) //nolint:gosec // of a checked name
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	buf := make([]byte, len(zeroes))
	for {
		n, err := f.Read(buf)
		if !bytes.Equal(buf[:n], zeroes[:n]) {
			return true, nil
		}
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
}

// Object reads one object.
func (s *Store) Object(_ context.Context, name string) (store.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.object(name)
}

// Objects lists all.
func (s *Store) Objects(context.Context) ([]store.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []store.Object
	for _, name := range slices.Sorted(maps.Keys(s.objects)) {
		o, err := s.object(name)
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

// Unfinished is nothing: creations are not interrupted.
func (s *Store) Unfinished(context.Context) ([]string, error) { return nil, nil }

// Delete removes an object.
func (s *Store) Delete(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := store.CheckName(name); err != nil {
		return err
	}
	delete(s.objects, name)
	if err := os.Remove(s.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Expand makes an object longer.
func (s *Store) Expand(_ context.Context, name string, size int64) (store.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, err := s.object(name)
	if err != nil || o.Size >= size {
		return o, err
	}
	if o.ReadOnly {
		return store.Object{}, fmt.Errorf("%w: object %s is a snapshot", backend.ErrInvalid, name)
	}
	size, err = s.Features().Fit(size, 0)
	if err == nil {
		err = s.usage().Admit("memory", size-o.Size)
	}
	if err == nil {
		err = os.Truncate(s.path(name), size)
	}
	if err != nil {
		return store.Object{}, err
	}
	o.Size = size
	s.objects[name] = o
	return s.object(name)
}

// Label replaces the labels.
func (s *Store) Label(_ context.Context, name string, l store.Labels) (store.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := l.Check(); err != nil {
		return store.Object{}, err
	}
	o, err := s.object(name)
	if err != nil {
		return o, err
	}
	o.Labels = clone(l)
	s.objects[name] = o
	return s.object(name)
}

// Activate says where the bytes are.
func (s *Store) Activate(ctx context.Context, name string) (store.Backing, error) {
	if _, err := s.Object(ctx, name); err != nil {
		return store.Backing{}, err
	}
	return store.Backing{Path: s.path(name)}, nil
}

// Deactivate has nothing to do.
func (s *Store) Deactivate(_ context.Context, name string) error { return store.CheckName(name) }

// Usage is what was promised, all of which is taken, and what Fill says.
func (s *Store) Usage(context.Context) (store.Usage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usage(), nil
}

func (s *Store) usage() store.Usage {
	u := store.Usage{Total: s.cfg.Total, Used: s.others}
	for _, o := range s.objects {
		u.Promised += o.Size
		u.Used += o.Size
	}
	u.Full = u.Used >= u.Total
	return marks.Judge(u, s.Features())
}
