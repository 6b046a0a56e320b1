package agentclient_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/agent"
	"github.com/csi-mpath/csi-mpath/pkg/agent/pki"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/backend/agentclient"
	"github.com/csi-mpath/csi-mpath/pkg/backend/contract"
	"github.com/csi-mpath/csi-mpath/pkg/backend/memory"
)

// certificates makes those of a server on loopback, and of two tenants.
func certificates(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := pki.Init(dir, []string{"127.0.0.1"}, "mine", time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.AddClient(dir, "theirs", time.Now()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func files(dir, name string) pki.Files {
	return pki.Files{Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key"), CA: filepath.Join(dir, "ca.crt")}
}

// start serves backends on an address; stop is what SIGTERM does.
func start(t *testing.T, dir, address string, of func(string) backend.Backend) (at string, stop func()) {
	t.Helper()
	s, err := agent.New(agent.Config{For: of, TLS: files(dir, "server"), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.Shutdown(ctx)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

func connect(t *testing.T, dir, address, tenant string) *agentclient.Client {
	t.Helper()
	c, err := agentclient.New(agentclient.Config{Address: address, TLS: files(dir, "client-"+tenant), Failed: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// twin is storage in memory.
func twin(p backend.Pool) *memory.Storage {
	return memory.New(memory.Config{
		Pools: []backend.Pool{p},
		Room:  map[string]int64{p.Name: 1 << 40},
		Portals: map[backend.Transport][]backend.Portal{
			backend.ISCSI: {{Address: "192.0.2.1:3260", Group: 1}, {Address: "192.0.2.2:3260", Group: 2}},
			backend.NVMe:  {{Address: "192.0.2.1:4420", Group: 1}},
		},
	})
}

var pool = backend.Pool{Name: "pool", Kind: "memory", Transports: []backend.Transport{backend.ISCSI, backend.NVMe},
	Snapshots: true, SnapshotsInUse: true, Step: 1 << 20, Min: 1 << 20, Max: 1 << 40}

// Whatever a backend promises, it promises through an agent, too.
func TestABackendBehindAnAgentIsTheSameBackend(t *testing.T) {
	dir := certificates(t)
	contract.Run(t, func(t *testing.T) contract.Subject {
		s := twin(pool)
		address, _ := start(t, dir, "127.0.0.1:0", s.For)
		return contract.Subject{Backend: connect(t, dir, address, "mine"), Tenant: "mine", Other: connect(t, dir, address, "theirs"), Pool: pool.Name}
	})
}
