package nbd

import (
	"errors"
	"sync"

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

	// room is for left and the headers, borrowed while there is something to send.
	room *room
}

// room is that of one batch. Thousands of connections share as many as there
// are senders at a time.
type room struct {
	iov [2 * maxBatch]unix.Iovec
	hdr [maxBatch * proto.MaxReplyLen]byte
	n   int // of iov in use
}

var rooms = sync.Pool{New: func() any { return new(room) }}

func (t *sender) borrow() {
	if t.room == nil {
		t.room = rooms.Get().(*room)
	}
}

// giveBack returns the room: nothing of it is in use.
func (t *sender) giveBack() {
	if t.room == nil {
		return
	}
	clear(t.room.iov[:t.room.n]) // no pointer into an arena may outlive that
	t.room.n = 0
	rooms.Put(t.room)
	t.room = nil
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
			t.giveBack()
			return false
		}
	}
	t.borrow()
	iov, hdr := t.room.iov[:], t.room.hdr[:]
	t.left, t.first, t.n = iov[:0], t.waiting, 0
	at, joined := 0, false
	for r := t.waiting; r != nil && t.n < maxBatch; r = r.Next {
		h, data := c.put(hdr[at:], r)
		if joined {
			v := &t.left[len(t.left)-1] // headers without data lie side by side
			v.SetLen(int(v.Len) + h)
		} else {
			t.left = append(t.left, poll.Iovec(hdr[at:at+h]))
		}
		at += h
		if joined = !data; data {
			t.left = append(t.left, poll.Iovec(r.Buf[:r.Len]))
		}
		t.last = r
		t.n++
	}
	t.room.n = max(t.room.n, len(t.left))
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
