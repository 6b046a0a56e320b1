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
	if code := run([]string{"agent", "init", "--dir", filepath.Join(h.dir, "tls"), "--host", "127.0.0.1", "--tenant", "prod"}); code != 0 {
		t.Fatal(code)
	}
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
	return func() {
		signals <- syscall.SIGTERM
		if err := <-done; err != nil {
			h.t.Error(err)
		}
	}
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
		var out bytes.Buffer
		cmd := agentCommand()
		cmd.SetArgs([]string{command, "--socket", h.admin})
		cmd.SetOut(&out)
		if err := cmd.ExecuteContext(context.Background()); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v\n%s", command, err, &out)
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
	text := strings.NewReplacer(h.address, hold(t), "/files}}", "/files2}}", "metrics:", "# metrics:").Replace(string(b))
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
