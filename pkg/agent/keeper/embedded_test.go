package keeper

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/embedded"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store/directory"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store/memory"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/backend/contract"
	"github.com/csi-mpath/csi-mpath/test/node"
	"github.com/csi-mpath/csi-mpath/test/port"
)

// server is what an agent of files and the embedded target is: all of it ends
// with its process.
type server struct {
	t           testing.TB
	state, pool string // directories
	listen      map[backend.Transport]string
	openStore   func(dir string) (store.Store, error)

	store   store.Store
	exports []export.Exporter
	k       *Keeper
}

func newServer(t testing.TB) *server { return newServerOver(t, openDirectory) }

func newServerOver(t testing.TB, openStore func(dir string) (store.Store, error)) *server {
	s := &server{t: t, openStore: openStore, state: t.TempDir(), pool: t.TempDir(), listen: map[backend.Transport]string{}}
	for _, tr := range []backend.Transport{backend.ISCSI, backend.NVMe} {
		held, err := port.Hold()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = held.Close() })
		s.listen[tr] = held.Addr()
	}
	s.open()
	t.Cleanup(func() { s.close() })
	return s
}

func (s *server) open() {
	s.t.Helper()
	if err := s.begin(context.Background()); err != nil {
		s.t.Fatal(err)
	}
}

// begin is what an agent does at start.
func (s *server) begin(ctx context.Context) (err error) {
	if s.store, err = s.openStore(s.pool); err != nil {
		return err
	}
	s.exports = nil
	for _, tr := range []backend.Transport{backend.ISCSI, backend.NVMe} {
		x, err := embedded.New(embedded.Config{Transport: tr, Portals: []embedded.Portal{{Listen: s.listen[tr]}}})
		if err != nil {
			return err
		}
		s.exports = append(s.exports, x)
	}
	s.k, err = Open(ctx, Config{State: s.state, Pools: []Pool{{Name: pool0, Store: s.store, Exports: s.exports}}})
	return err
}

// close is how an agent ends; what a crash stopped is not waited for.
func (s *server) close() {
	s.k.stop()
	s.k.unlock()
	for _, x := range s.exports {
		_ = x.Close()
	}
	_ = s.store.Close()
}

func (s *server) subject() contract.Subject {
	return contract.Subject{
		Backend: s.k.For("t"), Other: s.k.For("other"), Tenant: "t", Pool: pool0,
		Restart: func(t testing.TB) contract.Subject {
			if err := s.k.Close(); err != nil {
				t.Fatal(err)
			}
			s.close()
			s.open()
			return s.subject()
		},
		Crash: func(t testing.TB, point string, nth int, call func(backend.Backend)) (contract.Subject, bool) {
			if !contract.Interrupt(t, point, nth, func() { call(s.k.For("t")) }) {
				return s.subject(), false
			}
			s.close()
			s.open()
			return s.subject(), true
		},
		Leftovers: func(testing.TB) []string { return s.left() },
		Attach: func(ctx context.Context, c backend.Connection, a backend.Auth) (contract.Disk, error) {
			return node.Attach(ctx, c, a)
		},
		Calls: 500,
	}
}

// left are the things of a server without volumes.
func (s *server) left() []string {
	r := &rig{t: s.t, dir: s.state}
	left := append(r.leftInJournal(), r.leftServed(s.exports...)...)
	entries, err := os.ReadDir(s.pool)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".lock") {
			left = append(left, filepath.Join(s.pool, e.Name()))
		}
	}
	return left
}

func openDirectory(dir string) (store.Store, error) {
	return directory.Open(directory.Config{Path: dir})
}

func TestTheContractOverFilesAndTheEmbeddedTarget(t *testing.T) {
	contract.Run(t, func(t *testing.T) contract.Subject { return newServer(t).subject() })
}

// TestTheContractOverSnapshotsThatWritersAreHeldOffFor: the store needs the target
// to hold back writes, as a directory with reflinks does, which is not everywhere.
// What a crash does to them is told elsewhere.
func TestTheContractOverSnapshotsThatWritersAreHeldOffFor(t *testing.T) {
	contract.Run(t, func(t *testing.T) contract.Subject {
		var kept store.Store // what it knows is in memory
		s := newServerOver(t, func(dir string) (store.Store, error) {
			if kept == nil {
				kept = memory.New(memory.Config{Dir: dir, Snapshots: true})
			}
			return kept, nil
		}).subject()
		s.Crash = nil
		return s
	})
}
