package faultproxy

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// rig is a proxy with both ends of one connection through it.
type rig struct {
	*Proxy
	t              *testing.T
	server         net.Listener
	client, target net.Conn
}

func newRig(t *testing.T) *rig {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Listen("127.0.0.1:0", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Proxy: p, t: t, server: l}
	t.Cleanup(func() { _ = l.Close(); _ = p.Close() })
	return r
}

// connect makes a connection through the proxy.
func (r *rig) connect() *rig {
	r.t.Helper()
	r.client = r.dial()
	c, err := r.server.Accept()
	if err != nil {
		r.t.Fatal(err)
	}
	r.target = c
	r.t.Cleanup(func() { _ = c.Close() })
	return r
}

func (r *rig) dial() net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.Addr())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (r *rig) send(c net.Conn, s string) {
	r.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) want(c net.Conn, s string) {
	r.t.Helper()
	b := make([]byte, len(s))
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if n, err := io.ReadFull(c, b); err != nil || string(b) != s {
		r.t.Fatalf("got %q (%v), want %q", b[:n], err, s)
	}
}

// patience bounds what must come in the end, on however slow a machine.
const patience = time.Minute

// until waits for what the proxy does in goroutines of its own.
func (r *rig) until(what string, done func() bool) {
	r.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(patience); !done(); {
		select {
		case <-tick.C:
		case <-late:
			r.t.Fatalf("not within %v: %s; %+v", patience, what, r.Stats())
		}
	}
}

func (r *rig) swallowed(n uint64) {
	r.t.Helper()
	r.until("the black hole swallows", func() bool { return r.Stats().Discarded == n })
}

// silent checks that nothing arrives for a moment.
func (r *rig) silent(c net.Conn) {
	r.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	if n, err := c.Read(make([]byte, 9)); !errors.Is(err, os.ErrDeadlineExceeded) {
		r.t.Fatalf("got %d bytes, %v; want silence", n, err)
	}
}

func (r *rig) ends(c net.Conn, want error) {
	r.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if n, err := c.Read(make([]byte, 9)); n != 0 || !errors.Is(err, want) {
		r.t.Fatalf("got %d bytes, %v; want %v", n, err, want)
	}
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}
