//go:build vm

package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/embedded"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/lio"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/nvmet"
	"github.com/csi-mpath/csi-mpath/pkg/agent/keeper"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store/lvmthin"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/backend/contract"
	"github.com/csi-mpath/csi-mpath/test/node"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// pool is the name of a server's one pool.
const pool = "pool"

// server is what an agent has inside: a keeper over a store and exporters.
type server struct {
	t         testing.TB
	state     string
	openStore func() (store.Store, error)
	openAll   func() ([]export.Exporter, error)
	leftovers func() []string // of the store
	cut       bool            // each verb is also cut short at each fault point
	// unenforced is contract.Subject's: the kernel's NVMe target has one namespace for
	// all hosts (docs/limitations.md).
	unenforced []backend.Transport

	store   store.Store
	exports []export.Exporter
	k       *keeper.Keeper
	over    bool
}

// start opens all of it, and clears it away after the test.
func start(t testing.TB, s server) *server {
	t.Helper()
	s.t, s.state = t, filepath.Join(t.TempDir(), "state")
	s.open()
	t.Cleanup(s.end)
	return &s
}

// one makes subjects of servers that share what they are over: the one before ends
// when the next begins.
func one(fresh func(t *testing.T) server) func(t *testing.T) contract.Subject {
	var last *server
	return func(t *testing.T) contract.Subject {
		if last != nil {
			last.end()
		}
		last = start(t, fresh(t))
		return last.subject()
	}
}

// end clears away what a server left, and ends it.
func (s *server) end() {
	if s.over {
		return
	}
	s.over = true
	s.clear()
	s.close()
}

func (s *server) open() {
	s.t.Helper()
	var err error
	if s.store, err = s.openStore(); err != nil {
		s.t.Fatal(err)
	}
	if s.exports, err = s.openAll(); err != nil {
		s.t.Fatal(err)
	}
	s.k, err = keeper.Open(context.Background(), keeper.Config{State: s.state, Pools: []keeper.Pool{{Name: pool, Store: s.store, Exports: s.exports}}})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) close() {
	s.t.Helper()
	errs := []error{s.k.Close()}
	for _, x := range s.exports {
		errs = append(errs, x.Close())
	}
	rig.Must(s.t, errors.Join(append(errs, s.store.Close())...))
}

// clear deletes all that tests left: the next one begins with nothing.
func (s *server) clear() {
	ctx := context.Background()
	for _, tenant := range []string{"t", "other"} {
		b := s.k.For(tenant)
		volumes, _, err := b.Volumes(ctx, backend.Page{})
		snapshots, _, err2 := b.Snapshots(ctx, backend.ID{}, backend.Page{})
		for _, v := range snapshots {
			err = errors.Join(err, b.DeleteSnapshot(ctx, v.ID))
		}
		for _, v := range volumes {
			err = errors.Join(err, b.Unpublish(ctx, v.ID, ""), b.DeleteVolume(ctx, v.ID))
		}
		if err = errors.Join(err, err2); err != nil {
			s.t.Errorf("clearing: %v", err)
		}
	}
}

// crash is contract.Subject's: the keeper that was stopped stays as it is, with its lock
// on the state; the next one gets what was there at that moment.
func (s *server) crash(t testing.TB, point string, nth int, call func(backend.Backend)) (contract.Subject, bool) {
	if !contract.Interrupt(t, point, nth, func() { call(s.k.For("t")) }) {
		return s.subject(), false
	}
	for _, x := range s.exports {
		_ = x.Close()
	}
	_ = s.store.Close()
	next := filepath.Join(t.TempDir(), "state")
	rig.Sh(t, "cp -a "+s.state+" "+next)
	s.state = next
	s.open()
	return s.subject(), true
}

// subject is the server as the contract wants it.
func (s *server) subject() contract.Subject {
	u := s.uncut()
	if s.cut {
		u.Crash = s.crash
	}
	return u
}

// uncut is the subject without crashes.
func (s *server) uncut() contract.Subject {
	return contract.Subject{
		Backend: s.k.For("t"), Other: s.k.For("other"), Tenant: "t", Pool: pool,
		Restart: func(t testing.TB) contract.Subject {
			s.close()
			s.open()
			return s.subject()
		},
		Leftovers: s.left,
		Attach: func(ctx context.Context, c backend.Connection, a backend.Auth) (contract.Disk, error) {
			return node.Attach(ctx, c, a)
		},
		Unenforced: s.unenforced,
		Calls:      s.calls(),
		Within:     checkWithin,
	}
}

func long() bool { return os.Getenv("CSI_MPATH_LONG") != "" }

// checkWithin is for one check: LVM takes seconds for each command here.
const checkWithin = 20 * time.Minute

// calls of the random sequence: over LVM each is many commands, and the machine is
// emulated. One that is cut short needs a longer one.
func (s *server) calls() int {
	if s.cut {
		return 300
	}
	return 30
}

// left is what there should not be without volumes.
func (s *server) left(t testing.TB) []string {
	t.Helper()
	left := s.leftovers()
	for _, dir := range []string{"volumes", "fences"} {
		for _, name := range files(t, filepath.Join(s.state, dir)) {
			left = append(left, "state file "+name)
		}
	}
	for _, x := range s.exports {
		served, err := x.Exported(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range served {
			left = append(left, fmt.Sprintf("%s export %s", x.Kind(), e.Target))
		}
	}
	return left
}

// kernels are the kernel's targets, each with two portals.
func kernels() ([]export.Exporter, error) {
	l, err := lio.New(lio.Config{Portals: []export.Portal{{Listen: "127.0.0.1:3260"}, {Listen: "127.0.0.1:3261"}}})
	if err != nil {
		return nil, err
	}
	n, err := nvmet.New(nvmet.Config{Portals: []export.Portal{{Listen: "127.0.0.1:4420"}, {Listen: "127.0.0.1:4421"}}})
	return []export.Exporter{l, n}, err
}

// ours are the embedded targets.
func ours() ([]export.Exporter, error) {
	i, err := embedded.New(embedded.Config{Transport: backend.ISCSI, Portals: []embedded.Portal{{Listen: "127.0.0.1:13260"}}})
	if err != nil {
		return nil, err
	}
	n, err := embedded.New(embedded.Config{Transport: backend.NVMe, Portals: []embedded.Portal{{Listen: "127.0.0.1:14420"}}})
	return []export.Exporter{i, n}, err
}

// over is a server over a group's pool.
func (g *group) over(queue bool, exporters func() ([]export.Exporter, error)) server {
	c := g.config()
	c.QueueWhenFull = queue
	return server{openAll: exporters, leftovers: g.Volumes, unenforced: []backend.Transport{backend.NVMe}, cut: long(), // an hour of LVM
		openStore: func() (store.Store, error) { return lvmthin.Open(context.Background(), c) }}
}
