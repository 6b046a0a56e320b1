// Package estate serves what a configuration of `csi-mpath target` says: it
// opens the stores, builds the targets, listens, and follows the configuration
// when it changes.
//
//	e, err := estate.Open(cfg, estate.Options{Secrets: read})
//	err = e.Apply(changed)
//	err = e.Close()
//
// A change is made in two steps. The first (plan.go) does what may fail: it
// compares, reads secrets, opens stores, listens; if anything does fail, all of
// it is undone. The second (change.go) cannot fail short of a bug or a full disk.
package estate

import (
	"errors"
	"sync"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	nvmeauth "github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/config"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
	"github.com/csi-mpath/csi-mpath/pkg/target/subsystem"
)

// Options are what an Estate needs of the outside.
type Options struct {
	// Secrets reads a file of CHAP credentials.
	Secrets func(path string) (auth.Credentials, error)
	// DHChap reads the files of a host's secret, and of the controller's, whose
	// path may be empty.
	DHChap func(host, controller string) (nvmeauth.Credentials, error)
}

// Estate is a running configuration. All methods may be called from any
// goroutine; they wait for each other.
type Estate struct {
	opt Options

	mu      sync.Mutex
	hubs    hubs
	doors   map[string]*serve.Door // by the configured address
	targets map[string]*served     // by name
	order   []string               // of names
	closed  bool
}

// served is one target.
type served struct {
	cfg  config.Target
	srv  server
	luns map[uint32]*lun
}

// lun is one logical unit and its store.
type lun struct {
	cfg   config.LUN
	size  uint64 // bytes
	store target.Store
}

var errClosed = errors.New("the target has ended")

// Open serves a configuration.
func Open(c *config.Config, opt Options) (*Estate, error) {
	hubs, err := newHubs()
	if err != nil {
		return nil, err
	}
	e := &Estate{opt: opt, hubs: hubs, doors: map[string]*serve.Door{}, targets: map[string]*served{}}
	if err := e.Apply(c); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// Apply changes what is served to what c says. With an error of the plan
// nothing has changed.
func (e *Estate) Apply(c *config.Config) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return errClosed
	}
	p, err := e.plan(c)
	if err != nil {
		return err
	}
	return e.change(p)
}

// Close resets all connections, makes the stores durable and closes them.
func (e *Estate) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	errs := []error{e.hubs.close()}
	for _, t := range e.targets {
		errs = append(errs, t.close())
	}
	return errors.Join(errs...)
}

// close ends a target and its stores.
func (t *served) close() error {
	err := t.srv.Close()
	for _, l := range t.luns {
		err = errors.Join(err, l.close())
	}
	return err
}

func (l *lun) close() error { return errors.Join(l.store.Flush(), l.store.Close()) }

// Target is what is served, for people to read.
type Target struct {
	Name    string
	NVMe    bool     // a subsystem
	Portals []string // addresses to connect to
	LUNs    []LUN
	Auth    bool // it asks everybody for a secret
}

// LUN is one logical unit, or namespace, of a Target.
type LUN struct {
	Number uint32
	Size   uint64 // bytes
	Store  string // "memory", or the file
}

// Targets lists what is served now, in the order of the configuration.
func (e *Estate) Targets() (out []Target) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range e.order {
		s := e.targets[name]
		t := Target{Name: name, NVMe: s.cfg.NVMe, Auth: s.cfg.Auth.SecretFile != ""}
		for _, p := range s.cfg.Portals {
			at := p.Advertise
			if at == "" {
				at = e.doors[p.Address].Addr()
			}
			t.Portals = append(t.Portals, at)
		}
		for _, c := range s.cfg.LUNs {
			l := s.luns[c.Number]
			where := l.cfg.Store.File
			if where == "" {
				where = "memory"
			}
			t.LUNs = append(t.LUNs, LUN{Number: c.Number, Size: l.size, Store: where})
		}
		out = append(out, t)
	}
	return out
}

// Door is a portal by its configured address, nil when there is none: to stop
// and start it, for demonstrations and tests.
func (e *Estate) Door(address string) *serve.Door {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.doors[address]
}

// Server is an iSCSI target by its name, nil when there is none: to make faults.
func (e *Estate) Server(name string) *target.Server {
	s, _ := e.server(name).(iscsiServer)
	return s.Server
}

// Subsystem is an NVMe subsystem by its NQN, nil when there is none.
func (e *Estate) Subsystem(nqn string) *subsystem.Server {
	s, _ := e.server(nqn).(nvmeServer)
	return s.Server
}

func (e *Estate) server(name string) server {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.targets[name]; s != nil {
		return s.srv
	}
	return nil
}
