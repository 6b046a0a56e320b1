package agent

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/agent/agentpb"
)

// answered reports whether a server that was spoken to said anything but goodbye.
// One that lets a client in sends its HTTP/2 settings.
func answered(c net.Conn) bool {
	var b [1]byte
	n, _ := c.Read(b[:])
	return n > 0
}

// loud has every refusal in the log.
func loud() limits {
	lim := defaults()
	lim.quiet = 0
	return lim
}

func (r *rig) refusals(reason string) float64 {
	return r.metric("csi_mpath_agent_connections_refused_total", reason)
}

// Long: one line for each stranger.
func TestStrangersAreRefusedAndLogged(t *testing.T) {
	r := run(t, loud(), nil)
	with := func(stranger bool, change func(*x509.Certificate)) *tls.Config {
		cfg := r.client()
		cfg.Certificates = []tls.Certificate{r.mint(stranger, change)}
		return cfg
	}
	named := func(all ...string) *tls.Config {
		return with(false, func(c *x509.Certificate) { c.URIs = uris(all...) })
	}
	old := r.client()
	old.MaxVersion = tls.VersionTLS12
	nobody := r.client()
	nobody.Certificates = nil
	for _, c := range []struct {
		who  string
		cfg  *tls.Config
		says string // the log
	}{
		{"of another authority", with(true, func(*x509.Certificate) {}), "unknown authority"},
		{"without a certificate", nobody, "didn't provide a certificate"},
		{"whose certificate ran out", with(false, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), "is after"},
		{"whose certificate is of later", with(false, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour / 2) }), "is before"},
		{"with TLS 1.2", old, "unsupported versions"},
		{"of no tenant", named(), "0 URI names"},
		{"of two tenants", named("spiffe://csi-mpath.io/cluster/a", "spiffe://csi-mpath.io/cluster/b"), "2 URI names"},
		{"of a tenant that is a path", named("spiffe://csi-mpath.io/cluster/../a"), "/cluster/../a"},
		{"of a tenant in another domain", named("spiffe://example.org/cluster/a"), "example.org"},
		{"with a server's certificate", with(false, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), "incompatible key usage"},
	} {
		before := r.refusals("handshake")
		conn := tls.Client(r.raw(), c.cfg)
		if conn.Handshake() == nil && answered(conn) {
			t.Errorf("a client %s was let in", c.who)
		}
		eventually(t, "a refusal of one "+c.who, func() bool { return r.refusals("handshake") > before })
		eventually(t, "a line in the log that says "+c.says, func() bool { return strings.Contains(r.log.String(), c.says) })
	}
	if !answered(tls.Client(r.raw(), r.client())) {
		t.Error("a good client was not let in")
	}
}

func TestPlaintextIsRefused(t *testing.T) {
	r := run(t, loud(), nil)
	for _, words := range []string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x00\x00\x00\x00\x00\x00\x00\x00"} {
		c := r.raw()
		if _, err := io.WriteString(c, words); err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(c)
		if strings.Contains(string(b), "HTTP") || len(b) > 16 {
			t.Errorf("%q was answered with %q", words, b)
		}
	}
	eventually(t, "three refusals", func() bool { return r.refusals("handshake") >= 3 })
}

func TestWhoeverSpeaksTooSlowlyIsCutOff(t *testing.T) {
	lim := loud()
	lim.handshake = 200 * time.Millisecond
	r := run(t, lim, nil)
	silent, slow, secure := r.raw(), r.raw(), tls.Client(r.raw(), r.client())
	if _, err := slow.Write([]byte{22, 3, 1}); err != nil { // the beginning of a handshake
		t.Fatal(err)
	}
	if err := secure.Handshake(); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]net.Conn{"says nothing": silent, "says three bytes": slow, "only greets": secure} {
		if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("who %s: %v", what, err)
		}
	}
	eventually(t, "nobody left", func() bool { waiting, open := r.gate.counts(); return waiting+open == 0 })
}

// memory is the heap after a collection, bytes.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestAThousandIdleConnectionsKeepNobodyOut(t *testing.T) {
	const crowd = 1000
	lim := defaults()
	lim.burst, lim.rate = crowd+100, crowd // the rate has a test of its own
	lim.handshake = time.Hour              // nobody goes by himself
	r := run(t, lim, nil)
	good := r.dial(r.client())
	if _, err := good.GetInfo(t.Context(), &agentpb.GetInfoRequest{}); err != nil {
		t.Fatal(err)
	}
	threads, bytes := runtime.NumGoroutine(), heap()
	var all []net.Conn
	for range crowd {
		c, err := net.Dial("tcp", r.address)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	eventually(t, "most of them gone", func() bool { return r.refusals("evicted") == float64(crowd-lim.pendingPerSource) })
	if n := r.refusals("handshake"); n != 0 {
		t.Errorf("%v of them were counted twice", n)
	}
	if waiting, open := r.gate.counts(); waiting != lim.pendingPerSource || open != 1 {
		t.Errorf("%d connections wait, %d are open", waiting, open)
	}
	eventually(t, "few goroutines", func() bool { return runtime.NumGoroutine() <= threads+4*lim.pendingPerSource })
	if more := heap() - bytes; int64(more) > 16<<20 {
		t.Errorf("%d bytes more", more)
	}
	if _, err := good.GetInfo(t.Context(), &agentpb.GetInfoRequest{}); err != nil {
		t.Errorf("a client that was there: %v", err)
	}
	if _, err := r.dial(r.client()).GetInfo(t.Context(), &agentpb.GetInfoRequest{}); err != nil {
		t.Errorf("a client that comes now: %v", err)
	}
	for _, c := range all {
		c.Close()
	}
	eventually(t, "none left", func() bool { waiting, _ := r.gate.counts(); return waiting == 0 })
	eventually(t, "the goroutines back", func() bool { return runtime.NumGoroutine() <= threads+16 })
	if lines := strings.Count(r.log.String(), "connection refused"); lines == 0 || lines > crowd/4 {
		t.Errorf("%d lines in the log", lines)
	}
}

func TestATenantHasOnlySoManyConnections(t *testing.T) {
	lim := loud()
	lim.perTenant = 3
	r := run(t, lim, nil)
	var all []*tls.Conn
	for i := range 5 {
		c := tls.Client(r.raw(), r.client())
		if in := answered(c); in != (i < lim.perTenant) {
			t.Fatalf("connection %d: %t", i, in)
		}
		all = append(all, c)
	}
	eventually(t, "a reason in the log", func() bool { return strings.Contains(r.log.String(), "tenant prod has 3 connections already") })
	all[0].Close()
	eventually(t, "room again", func() bool { _, open := r.gate.counts(); return open < lim.perTenant })
	if !answered(tls.Client(r.raw(), r.client())) {
		t.Error("there is no room after one left")
	}
}

func TestHandshakesHaveARate(t *testing.T) {
	lim := loud()
	lim.burst, lim.rate = 4, 1e-9
	r := run(t, lim, nil)
	for i := range 6 {
		c, err := net.Dial("tcp", r.address) // may be refused at once
		if err == nil {
			defer c.Close()
		}
		if in := err == nil && answered(tls.Client(c, r.client())); in != (i < 4) {
			t.Fatalf("connection %d: %t", i, in)
		}
	}
	if n := r.refusals("rate"); n != 2 {
		t.Errorf("%v refusals", n)
	}
}
