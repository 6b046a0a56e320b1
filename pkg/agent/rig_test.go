package agent

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/csi-mpath/csi-mpath/pkg/agent/agentpb"
	"github.com/csi-mpath/csi-mpath/pkg/agent/pki"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/backend/memory"
)

// rig is a server on loopback, and who may come to it.
type rig struct {
	*Server
	t        *testing.T
	dir      string // certificates
	address  string
	storage  *memory.Storage
	log      *journal
	registry *prometheus.Registry
}

// journal is a log that tests read.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

// audits are the lines of the audit log.
func (j *journal) audits(t *testing.T) (out []map[string]any) {
	t.Helper()
	for _, line := range strings.Split(strings.TrimSpace(j.String()), "\n") {
		m := map[string]any{}
		if line == "" {
			continue
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		if m["msg"] == "audit" {
			out = append(out, m)
		}
	}
	return out
}

// run starts a server. of is what tenants see, nil is storage in memory.
func run(t *testing.T, lim limits, of func(*memory.Storage, string) backend.Backend) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), log: &journal{}, registry: prometheus.NewRegistry(), storage: memory.New(memory.Config{
		Pools: []backend.Pool{{Name: "fast", Transports: []backend.Transport{backend.ISCSI}, Step: 1 << 20, Min: 1 << 20, Max: 1 << 40, Snapshots: true}},
		Room:  map[string]int64{"fast": 1 << 40},
		Portals: map[backend.Transport][]backend.Portal{
			backend.ISCSI: {{Address: "192.0.2.1:3260", Group: 1}},
		},
	})}
	if _, err := pki.Init(r.dir, []string{"127.0.0.1"}, "prod", time.Now()); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewJSONHandler(r.log, nil))
	cfg := Config{For: r.storage.For, TLS: r.files("server"), Version: "v1", Log: log, Audit: log, Metrics: r.registry}
	if of != nil {
		cfg.For = func(tenant string) backend.Backend { return of(r.storage, tenant) }
	}
	var err error
	if r.Server, err = newServer(cfg, lim); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.address = l.Addr().String()
	done := make(chan error, 1)
	go func() { done <- r.Serve(l) }()
	t.Cleanup(func() {
		r.Shutdown(ended())
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

// ended is a context for whoever must not wait.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func (r *rig) files(name string) pki.Files {
	f := func(n string) string { return filepath.Join(r.dir, n) }
	return pki.Files{Cert: f(name + ".crt"), Key: f(name + ".key"), CA: f("ca.crt")}
}

// identity is what a good client has.
func (r *rig) identity() *pki.Identity {
	r.t.Helper()
	s, err := pki.Open(r.files("client-prod"), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return s.Identity()
}

// client is the TLS of a good client.
func (r *rig) client() *tls.Config {
	id := r.identity()
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{id.Cert}, RootCAs: id.Peers, ServerName: "127.0.0.1",
		NextProtos: []string{"h2"}}
}

// dial is a gRPC client.
func (r *rig) dial(cfg *tls.Config) agentpb.AgentClient { return agentpb.NewAgentClient(r.conn(cfg)) }

func (r *rig) conn(cfg *tls.Config) *grpc.ClientConn {
	r.t.Helper()
	c, err := grpc.NewClient("passthrough:///"+r.address, grpc.WithTransportCredentials(credentials.NewTLS(cfg)), grpc.WithNoProxy())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

// raw is a connection of a stranger.
func (r *rig) raw() net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.address)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

// mint makes a client's certificate that is as the caller wants it. stranger: of
// an authority that the server does not know.
func (r *rig) mint(stranger bool, change func(*x509.Certificate)) tls.Certificate {
	r.t.Helper()
	dir := r.dir
	if stranger {
		dir = r.t.TempDir()
		if _, err := pki.Init(dir, []string{"127.0.0.1"}, "prod", time.Now()); err != nil {
			r.t.Fatal(err)
		}
	}
	ca, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key"))
	if err != nil {
		r.t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		r.t.Fatal(err)
	}
	template := &x509.Certificate{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), URIs: uris("spiffe://csi-mpath.io/cluster/prod"),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	change(template)
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, key.Public(), ca.PrivateKey)
	if err != nil {
		r.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func uris(all ...string) (out []*url.URL) {
	for _, s := range all {
		u, err := url.Parse(s)
		if err != nil {
			panic(err)
		}
		out = append(out, u)
	}
	return out
}

// eventually waits until something is so that nobody tells of.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick, never := time.NewTicker(5*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-never:
			t.Fatalf("never: %s", what)
		}
	}
}

// metric is the value of a metric with these labels, or 0.
func (r *rig) metric(name string, labels ...string) float64 {
	r.t.Helper()
	all, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if f.GetName() == name && strings.Join(values, ",") == strings.Join(labels, ",") {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}
