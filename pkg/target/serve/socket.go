package serve

import (
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/poll"
)

// conn is one TCP connection. Its reader goroutine receives; whoever sets
// sending, under s.mu, sends.
type conn struct {
	s       *Server
	p       *Portal
	c       *Conn
	sock    *poll.Socket
	sending bool
	idle    sync.Cond // sending became false; on s.mu
	batch   Batch
	iov     []unix.Iovec
}

func (k *conn) reset() {
	if t, ok := k.sock.Conn().(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = k.sock.Abort()
}

// serve starts a connection that may have begun with a greeting.
func (p *Portal) serve(nc net.Conn, g Greeting) {
	sock, err := poll.NewSocket(nc)
	if err != nil {
		_ = nc.Close()
		return
	}
	s := p.s
	s.mu.Lock()
	var c *Conn
	if !s.closed && !p.left {
		c = s.m.Connect(p.number, time.Now())
	}
	if c == nil {
		s.mu.Unlock()
		_ = nc.Close()
		return
	}
	k := &conn{s: s, p: p, c: c, sock: sock}
	k.idle.L = &s.mu
	c.User = k
	p.conns[k] = struct{}{}
	if r, ok := c.wire.(Resumer); ok && g.Said != nil {
		r.Resume(g.Said)
	}
	c.Input(time.Now(), g.First)
	s.arm()
	s.wg.Add(1)
	go k.read()
	s.settle(nil)
}

// read receives and works until the connection ends.
func (k *conn) read() {
	defer k.s.wg.Done()
	k.s.mu.Lock()
	a, b := k.c.Space()
	k.s.mu.Unlock()
	for {
		n, err := k.sock.Recv(a, b)
		if err != nil {
			break
		}
		for again := true; again; n = 0 {
			k.s.mu.Lock()
			k.c.Advance(time.Now(), n)
			again = k.c.Backlogged()
			a, b = k.c.Space()
			k.s.settle(k)
			k.flush(true)
		}
	}
	_ = k.sock.Abort()
	k.s.mu.Lock()
	delete(k.p.conns, k)
	k.c.Gone()
	k.s.settle(nil)
}

// flush sends the connection's output until there is none, and closes it if
// that was the last. If somebody else is sending, the reader waits for it;
// others leave it to them.
func (k *conn) flush(reader bool) {
	k.s.mu.Lock()
	for reader && k.sending {
		k.idle.Wait()
	}
	for !k.sending && k.c.Take(&k.batch) {
		k.sending = true
		k.s.mu.Unlock()
		err := k.send(k.batch.Vectors())
		k.s.mu.Lock()
		k.sending = false
		k.idle.Broadcast()
		k.batch.Reset()
		if err != nil {
			break
		}
	}
	over := k.c.Closing() && !k.sending
	k.s.mu.Unlock()
	if over {
		_ = k.sock.Abort()
	}
}

// send writes all of vec, parking while the socket is full.
func (k *conn) send(vec [][]byte) error {
	for len(vec) > 0 {
		n := min(len(vec), poll.MaxIovecs)
		k.iov = k.iov[:0]
		for _, v := range vec[:n] {
			k.iov = append(k.iov, poll.Iovec(v))
		}
		vec = vec[n:]
		for iov := k.iov; len(iov) > 0; {
			sent, err := k.sock.Send(iov)
			if errors.Is(err, poll.ErrAgain) {
				err = k.sock.WaitWritable()
			}
			if err != nil {
				return err
			}
			iov = poll.Advance(iov, sent)
		}
	}
	clear(k.iov)
	return nil
}
