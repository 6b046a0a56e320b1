package nbd

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/proto"
	"github.com/csi-mpath/csi-mpath/pkg/poll"
)

// sender is the state of sending; it belongs to the holder of conn.sending.
type sender struct {
	// waiting is drained from done and not yet in a batch, oldest first.
	waiting *blk.Request
	// first..last is the batch being sent, n requests; left is what the kernel
	// has not taken of it.
	first, last *blk.Request
	n           int
	left        []unix.Iovec

	iov []unix.Iovec // room for left
	hdr []byte       // room for the batch's headers
}

func (t *sender) init(depth int) {
	n := min(depth, maxBatch)
	t.iov = make([]unix.Iovec, 2*n)
	t.hdr = make([]byte, n*proto.MaxReplyLen)
}

// Flush sends the answers held so far, or leaves them to whoever is sending.
// It never blocks: what the socket does not take goes to the writer goroutine.
func (c *conn) Flush() {
	for !c.done.Empty() && c.sending.CompareAndSwap(0, 1) {
		if !c.deliver() {
			c.wakeWriter <- struct{}{} // never full: only the holder of sending puts
			return
		}
		c.sending.Store(0)
	}
}

// deliver sends until nothing is left, and reports false when the rest must
// wait for room, or has taken this goroutine's time long enough.
func (c *conn) deliver() bool {
	for round := 0; round < maxSendRounds; round++ {
		if len(c.tx.left) == 0 && !c.build() {
			return true
		}
		if !c.sendOnce() {
			return false
		}
	}
	return false
}

// write is the writer goroutine: it takes over a send that found the socket
// full, and parks until there is room.
func (c *conn) write(quit <-chan struct{}) {
	for {
		select {
		case <-c.wakeWriter:
		case <-quit:
			return
		}
		for !c.deliver() {
			if !c.gone.Load() && c.sock.WaitWritable() != nil {
				c.fail()
			}
		}
		c.sending.Store(0)
		c.Flush()
	}
}

// sendOnce gives the kernel what it takes now; false means that it is full.
// After the connection is gone nothing is sent, only released (I2).
func (c *conn) sendOnce() bool {
	for len(c.tx.left) > 0 && !c.gone.Load() {
		n, err := c.sock.Send(c.tx.left)
		if errors.Is(err, poll.ErrAgain) {
			return false
		}
		if err != nil {
			c.fail()
			break
		}
		c.tx.left = poll.Advance(c.tx.left, n)
	}
	c.release()
	return true
}

// build makes the next batch of done answers; false means that there are none.
func (c *conn) build() bool {
	t := &c.tx
	if t.waiting == nil {
		if t.waiting = c.done.Drain(); t.waiting == nil {
			return false
		}
	}
	t.left, t.first, t.n = t.iov[:0], t.waiting, 0
	at, joined := 0, false
	for r := t.waiting; r != nil && t.n < len(t.iov)/2; r = r.Next {
		h, data := c.put(t.hdr[at:], r)
		if joined {
			v := &t.left[len(t.left)-1] // headers without data lie side by side
			v.SetLen(int(v.Len) + h)
		} else {
			t.left = append(t.left, poll.Iovec(t.hdr[at:at+h]))
		}
		at += h
		if joined = !data; data {
			t.left = append(t.left, poll.Iovec(r.Buf[:r.Len]))
		}
		t.last = r
		t.n++
	}
	t.waiting = t.last.Next
	t.last.Next = nil
	return true
}

// release gives the batch's buffers and slots back, exactly once, and wakes
// the reader if it waits for them.
func (c *conn) release() {
	t := &c.tx
	for r := t.first; r != nil; r = r.Next {
		if r.Buf != nil {
			c.arena.Free(r.Buf)
			r.Buf = nil
		}
	}
	first, last := t.first, t.last
	t.first, t.last, t.left = nil, nil, nil
	c.freed.PushChain(first, last)
	if c.starved.Load() && c.starved.CompareAndSwap(true, false) {
		c.wake()
	}
}
