package attach_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// listenWithoutRoom is a TCP listener that nobody accepts from, with room for one.
func listenWithoutRoom(t *testing.T) (address string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*unix.SockaddrInet4).Port)
}

// names is a name server that has one answer for every name.
type names struct {
	mu        sync.Mutex
	addresses []netip.Addr
}

// serveNames is who this process asks for names until the test ends.
func serveNames(t *testing.T) *names {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n, was := &names{}, net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", c.LocalAddr().String())
	}}
	t.Cleanup(func() { net.DefaultResolver = was; _ = c.Close() })
	go func() {
		b := make([]byte, 512)
		for {
			l, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(n.answer(b[:l]), from)
		}
	}()
	return n
}

// is changes the answer.
func (n *names) is(addresses ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addresses = nil
	for _, a := range addresses {
		n.addresses = append(n.addresses, netip.MustParseAddr(a))
	}
}

// answer is a message for a question (RFC 1035 4.1): its header and question again,
// and a record for each address of the family that is asked for.
func (n *names) answer(q []byte) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	end := 12
	for q[end] != 0 {
		end += int(q[end]) + 1
	}
	end += 5
	kind, count := binary.BigEndian.Uint16(q[end-4:]), uint16(0)
	out := append([]byte{q[0], q[1], 0x84, 0, 0, 1, 0, 0, 0, 0, 0, 0}, q[12:end]...)
	for _, a := range n.addresses {
		if a.Is4() != (kind == 1) || a.Is6() != (kind == 28) {
			continue
		}
		count++
		out = append(out, 0xc0, 12)
		out = binary.BigEndian.AppendUint16(out, kind)
		out = append(out, 0, 1, 0, 0, 0, 0)
		out = binary.BigEndian.AppendUint16(out, uint16(len(a.AsSlice())))
		out = append(out, a.AsSlice()...)
	}
	binary.BigEndian.PutUint16(out[6:], count)
	return out
}
