// Package whole is the whole driver in one process, for tests: both halves on a
// socket, over mutual TLS to a storage host's agent, whose files are served by the
// embedded target, and a node whose file systems in memory do their I/O over NBD.
package whole

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/embedded"
	"github.com/csi-mpath/csi-mpath/pkg/agent/keeper"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store/memory"
	"github.com/csi-mpath/csi-mpath/pkg/attach/attachtest"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/driver"
	"github.com/csi-mpath/csi-mpath/pkg/volume"
	"github.com/csi-mpath/csi-mpath/test/sanity/suite"
)

// shortDir is for sockets, whose paths must be short.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// storageHost is an agent's keeper in this process, whose volumes are files, served
// over two portals of each transport.
func storageHost(t *testing.T, dir string, log *slog.Logger) *keeper.Keeper {
	t.Helper()
	files := memory.New(memory.Config{Dir: dir, Snapshots: true}) // a directory would want reflinks for them
	var exports []export.Exporter
	for _, transport := range []backend.Transport{backend.ISCSI, backend.NVMe} {
		e, err := embedded.New(embedded.Config{Transport: transport, Portals: []embedded.Portal{
			{Listen: "127.0.0.1:0", Group: 1}, {Listen: "127.0.0.1:0", Group: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		exports = append(exports, e)
	}
	k, err := keeper.Open(t.Context(), keeper.Config{Log: log, State: filepath.Join(dir, "state"), Pools: []keeper.Pool{{Name: "fast", Store: files, Exports: exports}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

// Driver is both halves.
type Driver struct {
	*driver.Controller
	Node    *driver.Node
	Machine *attachtest.Node
	Dir     string
	// Host is the directory of the storage host.
	Host string
}

// New makes one that ends with the test.
func New(t *testing.T) *Driver {
	t.Helper()
	return NewLogged(t, slog.New(slog.DiscardHandler))
}

// NewLogged is New whose storage host has a log.
func NewLogged(t *testing.T, log *slog.Logger) *Driver {
	t.Helper()
	w := &Driver{Dir: shortDir(t), Host: shortDir(t)}
	east := serveAgent(t, storageHost(t, w.Host, log), log)
	b, err := driver.NewBackends(driver.Config{Cluster: "c1b5e0f2", Backends: []driver.BackendConfig{east}}, openAgent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	w.Controller = &driver.Controller{Backends: b}
	w.HasNode = func(_ context.Context, node string) (bool, error) { return node == "node-1", nil }
	w.Node, w.Machine = NewNode(t, w.Dir, "node-1")
	return w
}

// NewNode is a node with its state in a directory, that ends with the test.
func NewNode(t *testing.T, dir, id string) (*driver.Node, *attachtest.Node) {
	t.Helper()
	machine, err := attachtest.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	volumes, err := volume.Open(volume.Config{State: filepath.Join(dir, "v"), Boot: "boot", Devices: machine, Mounts: machine.Host,
		Events: func(e volume.Event) { klog.InfoS("volume", "volume", e.Volume, "event", e.Kind, "message", e.Message) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = volumes.Close(ctx)
	})
	return &driver.Node{ID: id, Volumes: volumes, Limit: 128}, machine
}

// Serve runs the driver on a socket until the test ends.
func (w *Driver) Serve(t *testing.T) (socket string) {
	t.Helper()
	socket = filepath.Join(w.Dir, "csi")
	l, err := driver.Listen("unix://" + socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- driver.Serve(ctx, l, func(s *grpc.Server) {
			csi.RegisterIdentityServer(s, &driver.Identity{Version: "1", Backends: w.Backends})
			csi.RegisterControllerServer(s, w.Controller)
			csi.RegisterNodeServer(s, w.Node)
		}, nil)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return socket
}

// Sanity runs all of csi-sanity over one transport.
func Sanity(t *testing.T, transport backend.Transport) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	w := New(t)
	socket := w.Serve(t)
	suite.Run(t, suite.Driver{Endpoint: "unix://" + socket, Dir: w.Dir, Backend: "east", Pool: "fast", Transport: transport, Size: 8 << 20})
	if n := w.Machine.Devices(); n > 0 {
		t.Errorf("%d block devices are left", n)
	}
	if left := w.Node.Volumes.Volumes(); len(left) > 0 {
		t.Errorf("volumes %v are left", left)
	}
}
