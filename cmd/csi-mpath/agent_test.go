package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/pki"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/backend/agentclient"
	"github.com/csi-mpath/csi-mpath/pkg/backend/contract"
	"github.com/csi-mpath/csi-mpath/test/node"
	"github.com/csi-mpath/csi-mpath/test/port"
)

// scribe is a log that tells when a word is in it.
type scribe struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	wrote chan struct{}
}

func (s *scribe) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.wrote <- struct{}{}:
	default:
	}
	return s.buf.Write(b)
}

func (s *scribe) has(word string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.buf.String(), word)
}

// host is a machine with an agent on it.
type host struct {
	t            *testing.T
	dir, address string
	admin        string
}

// hold is an address that nobody else is given while the test runs.
func hold(t *testing.T) string {
	t.Helper()
	h, err := port.Hold()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h.Addr()
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{t: t, dir: t.TempDir(), address: hold(t)}
	short, err := os.MkdirTemp("", "a")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(short) })
	h.admin = filepath.Join(short, "admin.sock")
	h.command("init", "--dir", filepath.Join(h.dir, "tls"), "--host", "127.0.0.1", "--tenant", "prod")
	write(t, h.config(), fmt.Sprintf(`listen: %s
tls: {cert: %[2]s/tls/server.crt, key: %[2]s/tls/server.key, clientCA: %[2]s/tls/ca.crt}
state: %[2]s/state
admin: %[3]s
metrics: %[4]s
pools: [{name: files, directory: {path: %[2]s/files}}]
exports:
  iscsi: {kind: embedded, portals: [{listen: "%[5]s"}]}
  nvme-tcp: {kind: embedded, portals: [{listen: "%[6]s"}]}
`, h.address, h.dir, h.admin, hold(t), hold(t), hold(t)))
	return h
}

// command runs csi-mpath agent and returns what it printed.
func (h *host) command(args ...string) string {
	h.t.Helper()
	var out bytes.Buffer
	cmd := agentCommand()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		h.t.Fatalf("agent %s: %v", strings.Join(args, " "), err)
	}
	return out.String()
}

func (h *host) config() string { return filepath.Join(h.dir, "agent.yaml") }

// start runs the agent; stop is SIGTERM, and waits.
func (h *host) start() (stop func()) {
	h.t.Helper()
	cfg, err := readAgent(h.config())
	if err != nil {
		h.t.Fatal(err)
	}
	log, signals, done := &scribe{wrote: make(chan struct{}, 1)}, make(chan os.Signal, 1), make(chan error, 1)
	go func() { done <- runAgent(log, cfg, signals) }()
	for !log.has(`"msg":"ready"`) {
		select {
		case <-log.wrote:
		case err := <-done:
			h.t.Fatalf("%v\n%s", err, log.buf.String())
		}
	}
	return sync.OnceFunc(func() {
		signals <- syscall.SIGTERM
		if err := <-done; err != nil {
			h.t.Error(err)
		}
	})
}

func (h *host) client() *agentclient.Client {
	h.t.Helper()
	f := func(n string) string { return filepath.Join(h.dir, "tls", n) }
	c, err := agentclient.New(agentclient.Config{Address: h.address, TLS: pki.Files{Cert: f("client-prod.crt"), Key: f("client-prod.key"), CA: f("ca.crt")}})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { c.Close() })
	return c
}

// subject is the agent, as the command runs it, for the contract of backends.
func (h *host) subject(stop func()) contract.Subject {
	return contract.Subject{
		Backend: h.client(), Tenant: "prod", Pool: "files", Calls: 200,
		Restart: func(testing.TB) contract.Subject {
			stop()
			again := h.start()
			h.t.Cleanup(again)
			return h.subject(again)
		},
		Attach: func(ctx context.Context, c backend.Connection, a backend.Auth) (contract.Disk, error) {
			return node.Attach(ctx, c, a)
		},
	}
}

func TestAnAgentKeepsTheContractOfBackends(t *testing.T) {
	contract.Run(t, func(t *testing.T) contract.Subject {
		h := newHost(t)
		stop := h.start()
		t.Cleanup(stop)
		return h.subject(stop)
	})
}

func TestWhatAnAgentPublishedIsThereAfterItsRestart(t *testing.T) {
	h := newHost(t)
	stop := h.start()
	c := h.client()
	v, err := c.CreateVolume(t.Context(), backend.CreateVolume{Name: "pvc-1", Pool: "files", Size: backend.Size{Required: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	ask := backend.Publish{Volume: v.ID, Node: "node-1", Initiator: "iqn.2025-01.io.csi-mpath:node-1", Transport: backend.ISCSI}
	first, err := c.Publish(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Fence(t.Context(), "node-2"); err != nil {
		t.Fatal(err)
	}
	stop()
	defer h.start()()
	c = h.client()
	again, err := c.Publish(t.Context(), ask)
	if err != nil || again.Epoch != first.Epoch || again.WWID != first.WWID || again.Portals[0] != first.Portals[0] {
		t.Fatalf("%v\nwas %+v\n is %+v", err, first, again)
	}
	if nodes, err := c.Fenced(t.Context()); err != nil || len(nodes) != 1 || nodes[0] != "node-2" {
		t.Error(nodes, err)
	}
	if health, err := c.Health(t.Context()); err != nil || !health.Ready || len(health.Problems) != 0 {
		t.Error(health, err)
	}
	if err := c.Unpublish(t.Context(), v.ID, ""); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteVolume(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(h.dir, "files", "v-*")); len(left) != 0 {
		t.Error(left)
	}
}

func TestTheAgentOfThisMachineTellsHowItIs(t *testing.T) {
	h := newHost(t)
	defer h.start()()
	if _, err := h.client().CreateVolume(t.Context(), backend.CreateVolume{Name: "pvc-1", Pool: "files", Size: backend.Size{Required: 1 << 20}}); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{"status": "files ", "orphans": "KIND"} {
		if got := h.command(command, "--socket", h.admin); !strings.Contains(got, want) {
			t.Errorf("%s:\n%s", command, got)
		}
	}
	if fi, err := os.Stat(h.admin); err != nil || fi.Mode().Perm() != 0o600 {
		t.Error(fi.Mode(), err)
	}
}

func TestASecondAgentOverTheSameStateIsRefused(t *testing.T) {
	h := newHost(t)
	defer h.start()()
	b, err := os.ReadFile(h.config())
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(h.address, hold(t), "name: files", "name: files2", "/files}}", "/files2}}", "metrics:", "# metrics:").Replace(string(b))
	text = text[:strings.Index(text, "exports:")] + fmt.Sprintf("exports: {iscsi: {kind: embedded, portals: [{listen: %q}]}}\n", hold(t))
	write(t, h.config(), text)
	cfg, err := readAgent(h.config())
	if err != nil {
		t.Fatal(err)
	}
	err = runAgent(&bytes.Buffer{}, cfg, make(chan os.Signal))
	if err == nil || !strings.Contains(err.Error(), "another agent") {
		t.Error(err)
	}
}

func TestAnAgentWithoutItsCertificatesSaysHowToMakeThem(t *testing.T) {
	h := newHost(t)
	if err := os.Remove(filepath.Join(h.dir, "tls", "server.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := readAgent(h.config()); err == nil || !strings.Contains(err.Error(), "agent init") || !strings.Contains(err.Error(), "server.key") {
		t.Error(err)
	}
}

func TestAnOperatorFencesANode(t *testing.T) {
	h := newHost(t)
	defer h.start()()
	f := func(n string) string { return filepath.Join(h.dir, "tls", n) }
	as := []string{"--address", h.address, "--cert", f("client-prod.crt"), "--key", f("client-prod.key"), "--ca", f("ca.crt")}
	if got := h.command(append([]string{"fence", "node-1"}, as...)...); got != "node node-1 can write to no volume\n" {
		t.Errorf("%q", got)
	}
	if got := h.command(append([]string{"fenced"}, as...)...); got != "node-1\n" {
		t.Errorf("%q", got)
	}
	h.command(append([]string{"unfence", "node-1"}, as...)...)
	if got := h.command(append([]string{"fenced"}, as...)...); got != "" {
		t.Errorf("%q", got)
	}
}
