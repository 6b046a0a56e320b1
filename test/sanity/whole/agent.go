package whole

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/agent"
	"github.com/csi-mpath/csi-mpath/pkg/agent/keeper"
	"github.com/csi-mpath/csi-mpath/pkg/agent/pki"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/backend/agentclient"
	"github.com/csi-mpath/csi-mpath/pkg/driver"
)

// serveAgent serves a keeper to one tenant over mutual TLS until the test ends;
// what it returns is how the tenant reaches it.
func serveAgent(t *testing.T, k *keeper.Keeper, log *slog.Logger) driver.BackendConfig {
	t.Helper()
	dir := t.TempDir()
	if _, err := pki.Init(dir, []string{"127.0.0.1"}, "tenant", time.Now()); err != nil {
		t.Fatal(err)
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	s, err := agent.New(agent.Config{For: k.For, Log: log, Audit: log, TLS: pki.Files{Cert: file("server.crt"), Key: file("server.key"), CA: file("ca.crt")}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Shutdown(context.Background())
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return driver.BackendConfig{Name: "east", Agent: &driver.AgentConfig{Address: l.Addr().String(),
		CA: file("ca.crt"), Certificate: file("client-tenant.crt"), Key: file("client-tenant.key")}}
}

// openAgent is what csi-mpath controller opens.
func openAgent(c driver.BackendConfig) (backend.Backend, error) {
	return agentclient.New(agentclient.Config{Address: c.Agent.Address, TLS: pki.Files{Cert: c.Agent.Certificate, Key: c.Agent.Key, CA: c.Agent.CA}})
}
