package agent

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// from is a connection from somewhere; nothing goes over it.
type from struct {
	net.Conn
	addr   net.Addr
	closed atomic.Bool
}

func (f *from) RemoteAddr() net.Addr { return f.addr }
func (f *from) Close() error         { f.closed.Store(true); return nil }

func tcp(s string) *from { return &from{addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s))} }

// In the end, the counts are what they are when each connection is counted anew.
func TestTheGateCountsRight(t *testing.T) {
	lim := limits{connections: 10, perTenant: 4, pending: 6, pendingPerSource: 3, rate: 1000, burst: 1000}
	g, rnd, now := newGate(lim), rand.New(rand.NewPCG(1, 2)), time.Unix(0, 0)
	var all []*conn
	for range 20000 {
		now = now.Add(time.Millisecond)
		switch rnd.IntN(3) {
		case 0:
			c, evicted, reason := g.admit(tcp(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(rnd.IntN(5))}), 1).String()), now)
			if reason != "" {
				t.Fatal(reason)
			}
			all = append(all, c)
			for _, e := range evicted {
				if e == c {
					t.Fatal("evicted in its own favour")
				}
			}
		case 1:
			if len(all) > 0 {
				_ = g.authenticate(all[rnd.IntN(len(all))], string(rune('a'+rnd.IntN(5))), time.Hour)
			}
		case 2:
			if len(all) > 0 {
				i := rnd.IntN(len(all))
				_ = all[i].Close()
				all = append(all[:i], all[i+1:]...)
			}
		}
		recount(t, g, all)
	}
}

func recount(t *testing.T, g *gate, all []*conn) {
	t.Helper()
	waiting, open, tenants, sources := 0, 0, map[string]int{}, map[netip.Addr]int{}
	for _, c := range all {
		switch c.state {
		case pending:
			waiting++
			sources[c.source]++
		case authenticated:
			open++
			tenants[c.tenant]++
		}
	}
	if waiting != len(g.pending) || open != g.open || len(tenants) != len(g.tenants) || waiting > g.lim.pending || open > g.lim.connections {
		t.Fatalf("%d wait, counted %d; %d open, counted %d", waiting, len(g.pending), open, g.open)
	}
	for tenant, n := range tenants {
		if g.tenants[tenant] != n || n > g.lim.perTenant {
			t.Fatalf("tenant %s has %d, counted %d", tenant, n, g.tenants[tenant])
		}
	}
	for source, n := range sources {
		if n > g.lim.pendingPerSource {
			t.Fatalf("%d from %s", n, source)
		}
	}
}

func TestTheRateIsThatOfOneAddress(t *testing.T) {
	lim := limits{pending: 100, pendingPerSource: 100, rate: 2, burst: 3}
	g, now := newGate(lim), time.Unix(0, 0)
	let := func(addr string, n int) (in int) {
		for range n {
			if _, _, reason := g.admit(tcp(addr), now); reason == "" {
				in++
			}
		}
		return in
	}
	if a, b, same := let("10.0.0.1:1", 10), let("10.0.0.2:1", 10), let("10.0.0.1:2", 10); a != 3 || b != 3 || same != 0 {
		t.Error(a, b, same)
	}
	if a, b := let("[2001:db8::1]:1", 10), let("[2001:db8::2]:1", 10); a != 3 || b != 0 {
		t.Errorf("%d and %d of one /64", a, b)
	}
	now = now.Add(time.Second)
	if again := let("10.0.0.1:1", 10); again != 2 {
		t.Error(again)
	}
	now = now.Add(time.Hour)
	if again := let("10.0.0.1:1", 10); again != 3 {
		t.Error(again)
	}
}

func TestAddressesAreRememberedOnlySoMany(t *testing.T) {
	lim := limits{pending: 1, pendingPerSource: 1, rate: 1, burst: 1}
	g, now := newGate(lim), time.Unix(0, 0)
	in := 0
	for i := range 2 * maxSources {
		if _, _, reason := g.admit(tcp(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 1).String()), now); reason == "" {
			in++
		}
	}
	if len(g.sources) != maxSources || in != maxSources+1 {
		t.Errorf("%d addresses, %d let in", len(g.sources), in)
	}
	now = now.Add(time.Minute)
	if _, _, reason := g.admit(tcp("192.0.2.1:1"), now); reason != "" || len(g.sources) != 1 {
		t.Errorf("%q, %d addresses", reason, len(g.sources))
	}
}

func TestAConnectionEndsWithItsCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(defaults())
		raw := tcp("10.0.0.1:1")
		c, _, _ := g.admit(raw, time.Now())
		if err := g.authenticate(c, "prod", time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if raw.closed.Load() {
			t.Error("closed early")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, open := g.counts(); !raw.closed.Load() || open != 0 {
			t.Error("not closed")
		}
	})
}
