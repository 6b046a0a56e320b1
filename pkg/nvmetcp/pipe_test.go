package nvmetcp

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/poll"
)

// pipe is one direction of a connection in memory.
type pipe struct {
	mu    sync.Mutex
	moved sync.Cond // on mu: anything changed
	buf   []byte
	err   error // what follows buf
	full  int   // SendV takes no more than so much in buf; 0 no bound
	mute  bool  // what is written vanishes, as behind a pulled cable
}

func newPipe() *pipe {
	p := &pipe{}
	p.moved.L = &p.mu
	return p
}

func (p *pipe) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	p.moved.Broadcast()
}

// unplug makes what is written vanish.
func (p *pipe) unplug() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = true
}

// untilOver waits until nothing more can come.
func (p *pipe) untilOver() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.err == nil {
		p.moved.Wait()
	}
}

// end is one end of a connection in memory: what poll.NewSocket takes, and
// what runs in a bubble of virtual time.
type end struct {
	rx, tx   *pipe
	deadline time.Time // of reads, under rx.mu
	timer    *time.Timer
	closed   bool // under rx.mu
}

var _ poll.Stream = (*end)(nil)

// newPair makes a connection.
func newPair() (host, controller *end) {
	a, b := newPipe(), newPipe()
	return &end{rx: a, tx: b}, &end{rx: b, tx: a}
}

// RecvV implements poll.Stream.
func (e *end) RecvV(a, b []byte, park bool) (int, error) {
	e.rx.mu.Lock()
	defer e.rx.mu.Unlock()
	for {
		switch {
		case e.closed:
			return 0, net.ErrClosed
		case !e.deadline.IsZero() && !e.deadline.After(time.Now()):
			return 0, os.ErrDeadlineExceeded
		case len(e.rx.buf) > 0:
			n := copy(a, e.rx.buf)
			if n == len(a) {
				n += copy(b, e.rx.buf[n:])
			}
			e.rx.buf = e.rx.buf[n:]
			e.rx.moved.Broadcast()
			return n, nil
		case e.rx.err != nil:
			return 0, e.rx.err
		case !park:
			return 0, poll.ErrAgain
		}
		e.rx.moved.Wait()
	}
}

// SendV implements poll.Stream.
func (e *end) SendV(iov []unix.Iovec) (int, error) {
	e.tx.mu.Lock()
	defer e.tx.mu.Unlock()
	if e.tx.err != nil {
		return 0, unix.EPIPE
	}
	n := 0
	for _, v := range iov {
		b := unsafe.Slice(v.Base, v.Len)
		if e.tx.full > 0 {
			b = b[:min(len(b), max(0, e.tx.full-len(e.tx.buf)))]
		}
		if !e.tx.mute {
			e.tx.buf = append(e.tx.buf, b...)
		}
		if n += len(b); len(b) < int(v.Len) {
			break
		}
	}
	if n == 0 && len(iov) > 0 {
		return 0, poll.ErrAgain
	}
	e.tx.moved.Broadcast()
	return n, nil
}

// WaitWritable implements poll.Stream.
func (e *end) WaitWritable() error {
	e.tx.mu.Lock()
	defer e.tx.mu.Unlock()
	for e.tx.err == nil && e.tx.full > 0 && len(e.tx.buf) >= e.tx.full {
		e.tx.moved.Wait()
	}
	if e.tx.err != nil {
		return unix.EPIPE
	}
	return nil
}

// HungUp implements poll.Stream.
func (e *end) HungUp() bool {
	e.rx.mu.Lock()
	defer e.rx.mu.Unlock()
	return e.rx.err != nil
}

func (e *end) Read(b []byte) (int, error) { return e.RecvV(b, nil, true) }

func (e *end) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		iov := []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}}
		k, err := e.SendV(iov)
		if err == poll.ErrAgain {
			if err = e.WaitWritable(); err == nil {
				continue
			}
		}
		if err != nil {
			return n, err
		}
		n, b = n+k, b[k:]
	}
	return n, nil
}

// Close ends both directions, as a reset does.
func (e *end) Close() error {
	e.rx.mu.Lock()
	e.closed = true
	e.rx.mu.Unlock()
	e.rx.end(io.ErrClosedPipe)
	e.tx.end(io.EOF)
	return nil
}

func (e *end) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }
func (e *end) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 4420} }

func (e *end) SetReadDeadline(t time.Time) error {
	e.rx.mu.Lock()
	defer e.rx.mu.Unlock()
	if e.deadline = t; e.timer != nil {
		e.timer.Stop()
	}
	if !t.IsZero() {
		e.timer = time.AfterFunc(time.Until(t), e.rx.wake)
	}
	e.rx.moved.Broadcast()
	return nil
}

func (p *pipe) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moved.Broadcast()
}

func (e *end) SetDeadline(t time.Time) error    { return e.SetReadDeadline(t) }
func (e *end) SetWriteDeadline(time.Time) error { return nil }
