package kernel

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// pair is a connection to be: two ends of a unix stream socket.
type pair struct {
	server net.Conn
	fd     int // our descriptor of the kernel's end; -1 when given up
}

func newPair() (*pair, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("nbd: socketpair: %w", err)
	}
	// The kernel's sender is a worker that must wait for room.
	err = unix.SetNonblock(fds[1], false)
	f := os.NewFile(uintptr(fds[0]), "nbd connection")
	server, cerr := net.FileConn(f)
	if err = errors.Join(err, cerr, f.Close()); err != nil {
		_ = unix.Close(fds[1])
		return nil, fmt.Errorf("nbd: socketpair: %w", err)
	}
	return &pair{server, fds[1]}, nil
}

// newPairs makes n pairs, or none.
func newPairs(n int) ([]*pair, error) {
	all := make([]*pair, 0, n)
	for range n {
		p, err := newPair()
		if err != nil {
			drop(all)
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// sockets are the kernel's ends, as a message names them.
func sockets(all []*pair) []uint32 {
	out := make([]uint32, len(all))
	for i, p := range all {
		out[i] = uint32(p.fd)
	}
	return out
}

// servers are our ends.
func servers(all []*pair) []net.Conn {
	out := make([]net.Conn, len(all))
	for i, p := range all {
		out[i] = p.server
	}
	return out
}

// giveUp closes our descriptors of the kernel's ends, and returns the pairs the
// kernel holds and those it does not. It must come after the call that named
// them has ended: before, the numbers might mean another file to the kernel.
// The answer is exact when no process was forked since newPairs: until its exec
// is over it holds copies, and the far end does not hang up.
func giveUp(all []*pair) (taken, refused []*pair) {
	for _, p := range all {
		_ = unix.Close(p.fd)
		p.fd = -1
		if p.hungUp() {
			refused = append(refused, p)
		} else {
			taken = append(taken, p)
		}
	}
	return taken, refused
}

// hungUp reports that nobody has the kernel's end.
func (p *pair) hungUp() bool {
	rc, err := p.server.(syscall.Conn).SyscallConn()
	if err != nil {
		return true
	}
	hung := true
	_ = rc.Control(func(fd uintptr) {
		f := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		for {
			n, err := unix.Poll(f, 0)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			hung = err != nil || n > 0 && f[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
			return
		}
	})
	return hung
}

// drop closes what is left of pairs that nobody will use.
func drop(all []*pair) {
	for _, p := range all {
		_ = p.server.Close()
		if p.fd >= 0 {
			_ = unix.Close(p.fd)
			p.fd = -1
		}
	}
}
