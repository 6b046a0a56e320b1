// Package port keeps a loopback port for a server that is not always there.
//
// A port that was looked up and closed again, or that a killed server left, may
// be given to anybody who asks for a free one: tests run beside each other.
package port

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Held is a TCP port of 127.0.0.1 that the kernel gives to nobody who asks for
// a free one: a socket is bound to it and does not listen. A server that sets
// SO_REUSEADDR, as Go's and tgtd do, may listen there all the same. While none
// does, connections are refused.
type Held struct {
	fd   int
	addr string
}

// Hold takes a free port.
func Hold() (*Held, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("hold a port: %w", err)
	}
	h := &Held{fd: fd}
	if err := h.bind(); err != nil {
		return nil, errors.Join(fmt.Errorf("hold a port: %w", err), h.Close())
	}
	return h, nil
}

func (h *Held) bind() error {
	if err := unix.SetsockoptInt(h.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return err
	}
	if err := unix.Bind(h.fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	sa, err := unix.Getsockname(h.fd)
	if err != nil {
		return err
	}
	a, ok := sa.(*unix.SockaddrInet4)
	if !ok {
		return fmt.Errorf("bound to a %T", sa)
	}
	h.addr = (&net.TCPAddr{IP: a.Addr[:], Port: a.Port}).String()
	return nil
}

// Addr is the address, host:port.
func (h *Held) Addr() string { return h.addr }

// Close gives the port up; whoever listens there stays.
func (h *Held) Close() error { return unix.Close(h.fd) }
