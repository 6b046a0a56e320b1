package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/durable"
)

// Opener makes a backend of what the configuration says. It waits for nobody: a
// backend that cannot be reached is one whose calls fail. One that is an
// io.Closer is closed when the configuration has it no more.
type Opener func(BackendConfig) (backend.Backend, error)

// Backends are those of a configuration, which may change under way. Readers load
// one pointer; a stale one is as good as a call that came a moment earlier.
type Backends struct {
	open    Opener
	cluster string // of a configuration that does not say
	current atomic.Pointer[estate]
}

// estate is one state of the configuration, never written to.
type estate struct {
	cfg     Config
	entries []*entry // in the order of the configuration
}

// entry is one backend.
type entry struct {
	backend.Backend
	cfg BackendConfig
}

// NewBackends opens what cfg says. Its cluster is also that of configurations to come
// which name none.
func NewBackends(cfg Config, open Opener) (*Backends, error) {
	b := &Backends{open: open, cluster: cfg.Cluster}
	b.current.Store(&estate{})
	return b, b.Change(cfg)
}

// Change goes over to another configuration: what is the same in both stays open.
// When something cannot be opened, nothing changes. One caller at a time.
func (b *Backends) Change(cfg Config) error {
	if cfg.Cluster == "" {
		cfg.Cluster = b.cluster
	}
	if cfg.Cluster == "" {
		return errors.New("cluster: want the UID of the cluster's namespace kube-system: nodes' names at the storage are made of it")
	}
	old, next := b.current.Load(), &estate{cfg: cfg}
	var opened []*entry
	for _, c := range cfg.Backends {
		e := old.same(c)
		if e == nil {
			made, err := b.open(c)
			if err != nil {
				closeAll(opened)
				return fmt.Errorf("backend %s: %w", c.Name, err)
			}
			e = &entry{Backend: made, cfg: c}
			opened = append(opened, e)
		}
		next.entries = append(next.entries, e)
	}
	b.current.Store(next)
	for _, e := range old.entries {
		if next.same(e.cfg) != e {
			closeAll([]*entry{e})
		}
	}
	return nil
}

// same finds a backend that is configured exactly so.
func (s *estate) same(c BackendConfig) *entry {
	for _, e := range s.entries {
		if reflect.DeepEqual(e.cfg, c) {
			return e
		}
	}
	return nil
}

// closeAll closes what can be.
func closeAll(entries []*entry) {
	for _, e := range entries {
		if c, ok := e.Backend.(io.Closer); ok {
			if err := c.Close(); err != nil {
				klog.ErrorS(err, "backend is not closed", "backend", e.cfg.Name)
			}
		}
	}
}

// Close closes all backends.
func (b *Backends) Close() { closeAll(b.current.Swap(&estate{}).entries) }

// get finds a backend. One that the configuration does not have may exist all the
// same: nothing is known of its volumes.
func (s *estate) get(name string) (*entry, error) {
	for _, e := range s.entries {
		if e.cfg.Name == name {
			return e, nil
		}
	}
	return nil, fmt.Errorf("backend %q is not in the controller's configuration: %w", name, backend.ErrUnavailable)
}

// topology reports whether some backend is not reached from everywhere.
func (b *Backends) topology() bool {
	for _, e := range b.current.Load().entries {
		if len(e.cfg.Topology) > 0 {
			return true
		}
	}
	return false
}

// Follow keeps to a file that may change, until ctx ends. Contents are compared:
// Kubernetes replaces mounted files by renaming directories. What cannot be read
// is logged, and what was before stays.
func (b *Backends) Follow(ctx context.Context, file string) {
	last := b.reload(file, nil)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(reloadEvery):
			last = b.reload(file, last)
		}
	}
}

// reload reads the file, and returns what it read for the next time.
func (b *Backends) reload(file string, last []byte) []byte {
	text, err := durable.Read(file, maxConfig)
	if err != nil || (last != nil && string(text) == string(last)) {
		if err != nil {
			klog.ErrorS(err, "configuration cannot be read: the one before is used", "file", file)
		}
		return last
	}
	cfg, err := ParseConfig(text)
	if err == nil {
		err = b.Change(cfg)
	}
	if err != nil {
		klog.ErrorS(err, "configuration is refused: the one before is used", "file", file)
	} else {
		klog.InfoS("configuration is used", "file", file, "backends", len(cfg.Backends))
	}
	return text
}

// LoadConfig reads a configuration from a file.
func LoadConfig(file string) (Config, error) {
	text, err := durable.Read(file, maxConfig)
	if err != nil {
		return Config{}, err
	}
	cfg, err := ParseConfig(text)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", file, err)
	}
	return cfg, nil
}
