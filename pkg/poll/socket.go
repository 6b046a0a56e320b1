// Package poll moves bytes between memory and a non-blocking stream socket,
// in as few system calls as possible and without allocating.
//
// One goroutine receives; one goroutine at a time sends (the holder of the
// caller's own sender flag). Receiving parks in the runtime's netpoller;
// sending never parks unless asked to with WaitWritable.
package poll

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrAgain says that the socket's send buffer is full, or that there is nothing
// to receive.
var ErrAgain = errors.New("poll: not now")

// MaxIovecs is the most buffers one Send may carry (IOV_MAX).
const MaxIovecs = 1024

// Stats counts system calls of one socket. Read from any goroutine; the
// reader writes the Recv fields, the sender the Send fields.
type Stats struct {
	Recvs, Sends, Again atomic.Uint64
	Spun                atomic.Uint64 // waits that ended before the reader parked
}

// Stream is a connection without a file descriptor: an in-memory link that
// moves by itself, in the virtual time of a simulator. Its methods keep what
// Socket promises of its own, and Close keeps what Abort does.
type Stream interface {
	net.Conn
	// RecvV receives into a and then b. With park it waits for a byte, the end
	// (io.EOF), Close or the read deadline; without, nothing there is ErrAgain.
	RecvV(a, b []byte, park bool) (int, error)
	// SendV takes some of iov, or returns ErrAgain when it is full.
	SendV(iov []unix.Iovec) (int, error)
	WaitWritable() error
	HungUp() bool
}

// Socket wraps a TCP or unix stream connection, or a Stream.
type Socket struct {
	conn   net.Conn
	raw    syscall.RawConn
	stream Stream // nil for a real socket

	// Reader's state, with the closure made once so that no call allocates.
	rxIov    [2]unix.Iovec
	rxCnt    int
	rxN      int
	rxNow    bool // do not park
	rxErr    syscall.Errno
	rxFunc   func(fd uintptr) bool
	spin     spin
	base     time.Time    // of spin's clock
	polling  atomic.Int64 // Polling; set by anybody, read by the reader per wait
	hung     bool
	hungFds  [1]unix.PollFd
	hungFunc func(fd uintptr)
	// Sender's state.
	txIov    []unix.Iovec
	txN      int
	txErr    syscall.Errno
	txFunc   func(fd uintptr) bool
	waitFds  [1]unix.PollFd
	waitFunc func(fd uintptr) bool

	Stats Stats
}

// NewSocket takes over conn, which must be a *net.TCPConn, *net.UnixConn or Stream.
func NewSocket(conn net.Conn) (*Socket, error) {
	if st, ok := conn.(Stream); ok {
		return &Socket{conn: conn, stream: st}, nil
	}
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("poll: %T has no file descriptor", conn)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("poll: %w", err)
	}
	s := &Socket{conn: conn, raw: raw, base: time.Now()}
	s.rxFunc = s.recvOnce
	s.txFunc = s.sendOnce
	s.waitFunc = s.writable
	s.hungFunc = s.checkHung
	return s, nil
}

// Recv receives into a and then b (readv semantics; b may be nil), parking
// until at least one byte is there. It returns io.EOF at the end of the stream.
func (s *Socket) Recv(a, b []byte) (int, error) {
	if s.stream != nil {
		s.Stats.Recvs.Add(1)
		return s.stream.RecvV(a, b, !s.rxNow)
	}
	s.rxIov[0].Base = unsafe.SliceData(a)
	s.rxIov[0].SetLen(len(a))
	s.rxCnt = 1
	if len(b) > 0 {
		s.rxIov[1].Base = unsafe.SliceData(b)
		s.rxIov[1].SetLen(len(b))
		s.rxCnt = 2
	}
	var err error
	if p := Polling(s.polling.Load()); p != 0 && !s.rxNow {
		err = s.recvSpinning(p)
	} else {
		err = s.raw.Read(s.rxFunc)
	}
	s.rxIov = [2]unix.Iovec{}
	switch {
	case err != nil:
		return 0, err
	case s.rxErr != 0:
		return 0, s.rxErr
	case s.rxN == 0:
		return 0, io.EOF
	}
	return s.rxN, nil
}

// RecvNow is Recv that does not park: nothing to receive is ErrAgain.
func (s *Socket) RecvNow(a, b []byte) (int, error) {
	s.rxNow = true
	n, err := s.Recv(a, b)
	s.rxNow = false
	if errors.Is(err, syscall.EAGAIN) {
		err = ErrAgain
	}
	return n, err
}

func (s *Socket) recvOnce(fd uintptr) bool {
	for {
		s.Stats.Recvs.Add(1)
		var n uintptr
		if s.rxCnt == 1 {
			n, _, s.rxErr = syscall.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(s.rxIov[0].Base)),
				uintptr(s.rxIov[0].Len), 0, 0, 0)
		} else {
			n, _, s.rxErr = syscall.RawSyscall(unix.SYS_READV, fd, uintptr(unsafe.Pointer(&s.rxIov[0])), 2)
		}
		switch s.rxErr {
		case 0:
			s.rxN = int(n)
			return true
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			s.Stats.Again.Add(1)
			return s.rxNow
		default:
			s.rxN = 0
			return true
		}
	}
}

// Send writes iov once and returns how many bytes the kernel took. It never
// parks: a full socket is ErrAgain. len(iov) must be 1..MaxIovecs. The memory
// behind iov must stay valid only until Send returns.
func (s *Socket) Send(iov []unix.Iovec) (int, error) {
	if s.stream != nil {
		s.Stats.Sends.Add(1)
		return s.stream.SendV(iov)
	}
	s.txIov = iov
	err := s.raw.Write(s.txFunc)
	s.txIov = nil
	switch {
	case err != nil:
		return 0, err
	case s.txErr == syscall.EAGAIN:
		return 0, ErrAgain
	case s.txErr != 0:
		return 0, s.txErr
	}
	return s.txN, nil
}

func (s *Socket) sendOnce(fd uintptr) bool {
	msg := unix.Msghdr{Iov: unsafe.SliceData(s.txIov)}
	msg.SetIovlen(len(s.txIov))
	for {
		s.Stats.Sends.Add(1)
		var n uintptr
		var errno syscall.Errno
		if len(s.txIov) == 1 { // cheaper: the kernel has nothing to copy in but arguments
			n, _, errno = syscall.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(s.txIov[0].Base)),
				uintptr(s.txIov[0].Len), unix.MSG_NOSIGNAL, 0, 0)
		} else {
			n, _, errno = syscall.RawSyscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&msg)), unix.MSG_NOSIGNAL)
		}
		if errno == syscall.EINTR {
			continue
		}
		s.txN, s.txErr = int(n), errno
		return true
	}
}

// WaitWritable parks until the socket can take more, or is closed. Only the
// sender may call it, and no Send goes on while it parks.
func (s *Socket) WaitWritable() error {
	if s.stream != nil {
		return s.stream.WaitWritable()
	}
	return s.raw.Write(s.waitFunc)
}

// writable asks the kernel, rather than trusting the netpoller's next edge:
// the edge may have come, and been forgotten, between the Send that found the
// buffer full and the parking, and then no other follows.
func (s *Socket) writable(fd uintptr) bool {
	s.waitFds[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLOUT}
	_, err := unix.Poll(s.waitFds[:], 0)
	return err == nil && s.waitFds[0].Revents != 0
}

// HungUp reports whether the peer has closed its sending side, or the
// connection is reset. For a reader that does not receive now: bytes may still
// wait to be read. Reader only.
func (s *Socket) HungUp() bool {
	if s.stream != nil {
		return s.stream.HungUp()
	}
	s.hung = false
	return s.raw.Control(s.hungFunc) != nil || s.hung
}

func (s *Socket) checkHung(fd uintptr) {
	s.hungFds[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLRDHUP}
	_, err := unix.Poll(s.hungFds[:], 0)
	s.hung = err == nil && s.hungFds[0].Revents != 0
}

// Abort closes the socket and returns only when every Recv and Send has left
// its system call: after it no buffer given to them is touched again. With
// SO_LINGER{1,0} set (LingerReset) the kernel drops what it had queued.
func (s *Socket) Abort() error { return s.conn.Close() }

// Conn is the connection underneath, for addresses and socket options.
func (s *Socket) Conn() net.Conn { return s.conn }

// Advance drops the first n bytes of iov and returns the rest.
func Advance(iov []unix.Iovec, n int) []unix.Iovec {
	for len(iov) > 0 && n >= int(iov[0].Len) {
		n -= int(iov[0].Len)
		iov = iov[1:]
	}
	if n > 0 {
		iov[0].Base = (*byte)(unsafe.Add(unsafe.Pointer(iov[0].Base), n))
		iov[0].SetLen(int(iov[0].Len) - n)
	}
	return iov
}

// Iovec describes b.
func Iovec(b []byte) (v unix.Iovec) {
	v.Base = unsafe.SliceData(b)
	v.SetLen(len(b))
	return v
}

// LingerReset makes close send RST and drop queued data: a killed process must
// not let the kernel deliver writes that were queued (I3). For Dialer.Control.
func LingerReset(_, _ string, c syscall.RawConn) error {
	var serr error
	err := c.Control(func(fd uintptr) {
		serr = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 0})
	})
	return errors.Join(err, serr)
}
