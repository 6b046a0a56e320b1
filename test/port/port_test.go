package port

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

func hold(t *testing.T) *Held {
	t.Helper()
	h, err := Hold()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

func refused(t *testing.T, h *Held) {
	t.Helper()
	if c, err := net.Dial("tcp", h.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		if err == nil {
			_ = c.Close()
		}
		t.Fatalf("dial: %v", err)
	}
}

func TestAServerComesAndGoesOnAHeldPort(t *testing.T) {
	h := hold(t)
	for range 3 {
		refused(t, h)
		l, err := net.Listen("tcp", h.Addr())
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", h.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.Close(), l.Close()); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, h)
}

func TestAHeldPortIsGivenToNobodyElse(t *testing.T) {
	h := hold(t)
	for range 2000 {
		other, err := Hold()
		if err != nil {
			t.Fatal(err)
		}
		addr := other.Addr()
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		if addr == h.Addr() {
			t.Fatal("it was given away")
		}
	}
}
