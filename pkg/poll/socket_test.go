package poll

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

func pair(t *testing.T) (*Socket, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	d := net.Dialer{Control: LingerReset}
	c, err := d.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSocket(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Abort(); _ = peer.Close() })
	return s, peer
}

func TestRecvFillsTheFirstBufferThenTheSecond(t *testing.T) {
	s, peer := pair(t)
	if _, err := peer.Write([]byte("abcdefgh")); err != nil {
		t.Fatal(err)
	}
	a, b := make([]byte, 3), make([]byte, 10)
	got := 0
	for got < 8 {
		n, err := s.Recv(a[min(got, 3):], b[max(0, got-3):])
		if err != nil {
			t.Fatal(err)
		}
		got += n
		if got < 3 {
			continue
		}
	}
	if string(a) != "abc" || string(b[:5]) != "defgh" {
		t.Fatalf("got %q %q", a, b)
	}
}

func TestSendReportsAFullSocketWithoutParking(t *testing.T) {
	s, peer := pair(t)
	block := bytes.Repeat([]byte{7}, 1<<20)
	iov := make([]unix.Iovec, 1)
	sent := 0
	for {
		iov[0] = Iovec(block)
		n, err := s.Send(iov)
		if errors.Is(err, ErrAgain) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		sent += n
	}
	go func() { _, _ = io.CopyN(io.Discard, peer, int64(sent)) }()
	if err := s.WaitWritable(); err != nil {
		t.Fatal(err)
	}
	iov[0] = Iovec(block[:1])
	if _, err := s.Send(iov); err != nil {
		t.Fatalf("send after the socket became writable: %v", err)
	}
}

func TestRecvNowDoesNotPark(t *testing.T) {
	s, peer := pair(t)
	buf := make([]byte, 8)
	if _, err := s.RecvNow(buf, nil); !errors.Is(err, ErrAgain) {
		t.Fatalf("nothing there: %v", err)
	}
	if _, err := peer.Write([]byte("ab")); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Recv(buf[:1], nil); n != 1 || err != nil { // parks until it is there
		t.Fatal(n, err)
	}
	if n, err := s.RecvNow(buf, nil); n != 1 || err != nil || buf[0] != 'b' {
		t.Fatal(n, err)
	}
}

func TestAbortResetsThePeerAndEndsARecv(t *testing.T) {
	s, peer := pair(t)
	done := make(chan error, 1)
	go func() { _, err := s.Recv(make([]byte, 1), nil); done <- err }()
	_ = s.Abort()
	if err := <-done; err == nil {
		t.Fatal("Recv ended without an error")
	}
	if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Fatalf("peer saw %v, want a reset", err)
	}
}

func TestAdvanceCutsInsideAnIovec(t *testing.T) {
	iov := []unix.Iovec{Iovec([]byte("abc")), Iovec([]byte("defg"))}
	iov = Advance(iov, 5)
	if len(iov) != 1 || iov[0].Len != 2 || *iov[0].Base != 'f' {
		t.Fatalf("got %+v", iov)
	}
	if len(Advance(iov, 2)) != 0 {
		t.Fatal("not empty at the end")
	}
}

func TestSendAndRecvAllocateNothing(t *testing.T) {
	s, peer := pair(t)
	go func() { _, _ = io.Copy(peer, peer) }()
	iov := make([]unix.Iovec, 1)
	buf := make([]byte, 512)
	if n := testing.AllocsPerRun(200, func() {
		iov[0] = Iovec(buf)
		if _, err := s.Send(iov); err != nil {
			t.Fatal(err)
		}
		for got := 0; got < len(buf); {
			n, err := s.Recv(buf[got:], nil)
			if err != nil {
				t.Fatal(err)
			}
			got += n
		}
	}); n != 0 {
		t.Fatalf("%v allocations per round trip", n)
	}
}

func TestWaitWritableSeesRoomThatCameBeforeItParked(t *testing.T) {
	s, peer := pair(t)
	block := make([]byte, 1<<20)
	iov := make([]unix.Iovec, 1)
	for round := 0; round < 20; round++ {
		sent := 0
		for {
			iov[0] = Iovec(block)
			n, err := s.Send(iov)
			if errors.Is(err, ErrAgain) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			sent += n
		}
		// The peer takes everything before the wait: the edge is in the past.
		if _, err := io.CopyN(io.Discard, peer, int64(sent)); err != nil {
			t.Fatal(err)
		}
		if err := s.WaitWritable(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHungUpIsSeenBehindUnreadBytes(t *testing.T) {
	s, peer := pair(t)
	if _, err := peer.Write([]byte("unread")); err != nil {
		t.Fatal(err)
	}
	if s.HungUp() {
		t.Fatal("hung up while the peer is there")
	}
	_ = peer.Close()
	for !s.HungUp() {
	}
}
