package sim

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/poll"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// link is one connection. Its methods, those of a poll.Stream, are the
// initiator's end; array.go has the target's.
//
// A call behaves as the system call it stands for: Close returns when the
// others have left theirs, and what a call has taken counts as written, whatever
// happens meanwhile.
type link struct {
	w    *world
	path *path
	gen  int // of the process that dialled
	addr [2]net.Addr

	cond     sync.Cond // on w.mu: anything of the link changed
	tx, rx   flow      // to the target, from it
	in       []byte    // arrived, not received yet
	err      error     // what follows in
	deadline time.Time
	users    int  // calls under way
	closing  bool // Close was called
	closed   bool
	killed   bool // its process is dead

	conn  *serve.Conn // the target's end; nil once that is gone
	pend  []byte      // the target's output that found no room
	fin   bool        // the target closes after pend
	wakes dice        // of who wakes its reader
	dice  dice        // of the rest
	// spoiled: something of it was changed on the way.
	spoiled bool
	told    bool // POWER ON OCCURRED goes to its session
	spy     spy
	array   *array
	pump    func()
}

var errKilled = errors.New("sim: the process is dead")

// enter begins a call. Under mu.
func (l *link) enter() { l.users++ }

// leave ends it.
func (l *link) leave() {
	if l.users--; l.users == 0 {
		l.cond.Broadcast()
	}
	l.w.mu.Unlock()
}

// RecvV implements poll.Stream.
func (l *link) RecvV(a, b []byte, park bool) (int, error) {
	l.w.mu.Lock()
	l.enter()
	defer l.leave()
	l.spy.receives()
	l.w.yield(l.rx.dice)
	for {
		switch {
		case l.closing || l.killed:
			return 0, net.ErrClosed
		case !l.deadline.IsZero() && !l.deadline.After(time.Now()):
			return 0, os.ErrDeadlineExceeded
		case len(l.in) > 0:
			return l.take(a, b), nil
		case l.err != nil:
			return 0, l.err
		case !park:
			return 0, poll.ErrAgain
		}
		l.cond.Wait()
	}
}

// take receives a random part of what is there: reads may be short.
func (l *link) take(a, b []byte) int {
	n := len(l.in)
	if l.rx.dice.chance(3) {
		n = 1 + l.rx.dice.IntN(n)
	}
	k := copy(a, l.in[:n])
	if k == len(a) {
		k += copy(b, l.in[k:n])
	}
	l.spy.received(l.in[:k])
	l.in = l.in[k:]
	l.rx.bytes -= k
	if len(l.pend) > 0 {
		l.w.after(0, l.pump)
	}
	return k
}

// SendV implements poll.Stream.
func (l *link) SendV(iov []unix.Iovec) (int, error) {
	l.w.mu.Lock()
	l.enter()
	defer l.leave()
	if err := l.writeErr(); err != nil {
		return 0, err
	}
	late := l.spy.armed
	l.w.yield(l.tx.dice)
	l.stand()
	if l.killed {
		return 0, errKilled
	}
	total := 0
	for i := range iov {
		total += int(iov[i].Len)
	}
	n := min(total, l.tx.cap-l.tx.bytes)
	if n <= 0 {
		return 0, poll.ErrAgain
	}
	if l.tx.dice.chance(4) {
		n = 1 + l.tx.dice.IntN(n)
	}
	data := gather(iov, n)
	l.spy.sends(data, total, late)
	l.send(data)
	l.w.yield(l.tx.dice)
	return n, nil
}

func (l *link) writeErr() error {
	switch {
	case l.killed:
		return errKilled
	case l.closing:
		return net.ErrClosed
	case l.err != nil && !errors.Is(l.err, io.EOF):
		return syscall.EPIPE
	}
	return nil
}

// stand is a thread that the machine does not run, in the middle of its call:
// its memory is read after that.
func (l *link) stand() {
	if l.path.stands == 0 {
		return
	}
	end := time.Now().Add(l.path.stands)
	l.w.at(end, l.cond.Broadcast)
	for !l.killed && time.Now().Before(end) {
		l.cond.Wait()
	}
}

func gather(iov []unix.Iovec, n int) []byte {
	out := make([]byte, 0, n)
	for i := range iov {
		b := unsafe.Slice(iov[i].Base, int(iov[i].Len))
		out = append(out, b[:min(len(b), n-len(out))]...)
	}
	return out
}

// WaitWritable implements poll.Stream.
func (l *link) WaitWritable() error {
	l.w.mu.Lock()
	l.enter()
	defer l.leave()
	for l.tx.bytes >= l.tx.cap && l.writeErr() == nil {
		l.cond.Wait()
	}
	if l.closing || l.killed {
		return net.ErrClosed
	}
	return nil // an error shows itself in the next send
}

// HungUp implements poll.Stream.
func (l *link) HungUp() bool {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.err != nil || l.closing || l.killed
}

// Close implements net.Conn: a reset (SO_LINGER 0), once nobody is in a call.
func (l *link) Close() error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.closing {
		return net.ErrClosed
	}
	l.closing = true
	l.cond.Broadcast()
	for l.users > 0 {
		l.cond.Wait()
	}
	l.closed = true
	l.in = nil
	if !l.killed {
		l.abandon()
	}
	return nil
}

// Read implements net.Conn, for the login.
func (l *link) Read(p []byte) (int, error) { return l.RecvV(p, nil, true) }

// Write implements net.Conn, for the login.
func (l *link) Write(p []byte) (done int, err error) {
	for done < len(p) {
		n, err := l.SendV([]unix.Iovec{poll.Iovec(p[done:])})
		done += n
		if errors.Is(err, poll.ErrAgain) {
			err = l.waitToWrite()
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// waitToWrite is WaitWritable that minds the deadline, as a net.Conn does.
func (l *link) waitToWrite() error {
	l.w.mu.Lock()
	l.enter()
	defer l.leave()
	for l.tx.bytes >= l.tx.cap && l.writeErr() == nil {
		if !l.deadline.IsZero() && !l.deadline.After(time.Now()) {
			return os.ErrDeadlineExceeded
		}
		l.cond.Wait()
	}
	return l.writeErr()
}

// LocalAddr implements net.Conn.
func (l *link) LocalAddr() net.Addr { return l.addr[0] }

// RemoteAddr implements net.Conn.
func (l *link) RemoteAddr() net.Addr { return l.addr[1] }

// SetDeadline implements net.Conn.
func (l *link) SetDeadline(t time.Time) error { return l.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn.
func (l *link) SetWriteDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (l *link) SetReadDeadline(t time.Time) error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.closing || l.killed {
		return net.ErrClosed
	}
	l.deadline = t
	l.cond.Broadcast()
	if d := time.Until(t); d > 0 {
		l.w.after(d, l.cond.Broadcast)
	}
	l.w.yield(l.wakes)
	return nil
}
