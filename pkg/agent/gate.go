package agent

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// gate counts connections, and says which may be. It bounds what strangers can
// hold: memory, goroutines, and the time that handshakes take.
type gate struct {
	lim limits

	mu      sync.Mutex
	pending []*conn // in the order of their arrival
	tenants map[string]int
	open    int // authenticated
	sources map[netip.Addr]*bucket
	crowd   bucket    // of addresses beyond maxSources
	swept   time.Time // when sources were last looked through
}

func newGate(lim limits) *gate {
	return &gate{lim: lim, tenants: map[string]int{}, sources: map[netip.Addr]*bucket{}, crowd: bucket{left: lim.burst}}
}

// bucket counts the handshakes that an address may still begin.
type bucket struct {
	left float64
	at   time.Time
}

// take reports whether one more may begin now.
func (b *bucket) take(now time.Time, lim *limits) bool {
	b.refill(now, lim)
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

func (b *bucket) refill(now time.Time, lim *limits) {
	if !b.at.IsZero() {
		b.left = min(lim.burst, b.left+max(0, now.Sub(b.at).Seconds())*lim.rate)
	}
	b.at = now
}

// conn is a connection that the gate counts until it is closed.
type conn struct {
	net.Conn
	gate   *gate
	source netip.Addr
	// Written under gate.mu: which count it is in, and what closes it when its
	// client's certificate runs out.
	state  connState
	tenant string
	expiry *time.Timer
}

type connState int

const (
	pending connState = iota
	authenticated
	evicted // closed in favour of newer ones
	gone
)

// Close also takes it out of the counts, once.
func (c *conn) Close() error {
	c.gate.forget(c)
	return c.Conn.Close()
}

// source is what connections are counted by: an address, or the /64 of one of
// IPv6, where everybody has many.
func source(a net.Addr) netip.Addr {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	ip := ap.Addr().Unmap().WithZone("")
	if ip.Is6() {
		if p, err := ip.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return ip
}

// admit counts a connection that has just been accepted. One that may not be is
// nil, with the reason; evicted are those that go in its favour: the caller
// closes them.
func (g *gate) admit(raw net.Conn, now time.Time) (c *conn, evicted []*conn, reason string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	src := source(raw.RemoteAddr())
	if !g.bucket(src, now).take(now, &g.lim) {
		return nil, nil, "rate"
	}
	c = &conn{Conn: raw, gate: g, source: src}
	mine := 0
	for _, p := range g.pending {
		if p.source == src {
			mine++
		}
	}
	if mine >= g.lim.pendingPerSource {
		evicted = append(evicted, g.evict(func(p *conn) bool { return p.source == src }))
	}
	if len(g.pending) >= g.lim.pending {
		evicted = append(evicted, g.evict(func(*conn) bool { return true }))
	}
	g.pending = append(g.pending, c)
	return c, evicted, ""
}

// bucket is the count of a source; those that are full again are forgotten when
// there are too many, but not looked for all the time.
func (g *gate) bucket(src netip.Addr, now time.Time) *bucket {
	if b := g.sources[src]; b != nil {
		return b
	}
	if len(g.sources) >= maxSources && now.Sub(g.swept) >= sweepEvery {
		g.swept = now
		for k, b := range g.sources {
			if b.refill(now, &g.lim); b.left >= g.lim.burst {
				delete(g.sources, k)
			}
		}
	}
	if len(g.sources) >= maxSources {
		return &g.crowd
	}
	b := &bucket{left: g.lim.burst}
	g.sources[src] = b
	return b
}

// evict takes the oldest pending connection of some out of the counts; there is
// one.
func (g *gate) evict(of func(*conn) bool) *conn {
	i := slices.IndexFunc(g.pending, of)
	c := g.pending[i]
	g.pending = slices.Delete(g.pending, i, i+1)
	c.state = evicted
	return c
}

// evicted reports whether a connection was closed in favour of newer ones.
func (g *gate) evicted(c *conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return c.state == evicted
}

// authenticate moves a connection to its tenant's count, for as long as its
// certificate is valid: the client comes back with the next one.
func (g *gate) authenticate(c *conn, tenant string, valid time.Duration) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case c.state != pending:
		return fmt.Errorf("connection was closed in favour of newer ones")
	case g.tenants[tenant] >= g.lim.perTenant:
		return fmt.Errorf("tenant %s has %d connections already", tenant, g.lim.perTenant)
	case g.open >= g.lim.connections:
		return fmt.Errorf("%d connections already", g.lim.connections)
	}
	g.pending = slices.DeleteFunc(g.pending, func(p *conn) bool { return p == c })
	c.state, c.tenant = authenticated, tenant
	c.expiry = time.AfterFunc(valid, func() { _ = c.Close() })
	g.tenants[tenant]++
	g.open++
	return nil
}

func (g *gate) forget(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch c.state {
	case pending:
		g.pending = slices.DeleteFunc(g.pending, func(p *conn) bool { return p == c })
	case authenticated:
		c.expiry.Stop()
		g.open--
		if g.tenants[c.tenant]--; g.tenants[c.tenant] == 0 {
			delete(g.tenants, c.tenant)
		}
	}
	if c.state != evicted {
		c.state = gone
	}
}

// counts are the connections of now.
func (g *gate) counts() (waiting, open int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.pending), g.open
}

// listener hands out only what the gate lets in.
type listener struct {
	net.Listener
	gate    *gate
	refused func(reason string, from net.Addr, err error)
}

// Accept waits for the next connection that may be.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c, evicted, reason := l.gate.admit(raw, time.Now())
		for _, e := range evicted {
			l.refused("evicted", e.RemoteAddr(), nil)
			abort(e.Conn)
		}
		if reason != "" {
			l.refused(reason, raw.RemoteAddr(), nil)
			abort(raw)
			continue
		}
		return c, nil
	}
}

// abort closes without a trace of the connection in the kernel.
func abort(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
