package faultproxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// ending is how a source ended.
type ending uint8

const (
	running ending = iota
	finSeen
	rstSeen
)

// piece is a run of bytes, or the end, on its way through a flow.
type piece struct {
	data []byte
	buf  *[pieceSize]byte
	due  time.Time
	end  ending
}

// armed is a fault that waits for a byte of its flow.
type armed struct {
	at    int64
	fault Fault
}

// flow is one direction of one link. All fields below are under link.mu; a
// reader goroutine fills the queue, a writer goroutine empties it.
type flow struct {
	link     *link
	dir      Dir
	src, dst *net.TCPConn
	cond     *sync.Cond

	queue  []piece
	queued int
	off    int64 // stream offset of the queue's first byte
	armed  []armed
	spent  *[pieceSize]byte // buffer of the bytes being written

	held, hole, ended bool
	delay             time.Duration
	rate              int64
	free              time.Time // throttled: when the next byte may leave
	drop, flip        int64     // bytes left to drop, flip
	mask              byte
}

var pool = sync.Pool{New: func() any { return new([pieceSize]byte) }}

// read is the reader goroutine.
func (f *flow) read() {
	defer f.link.done()
	for {
		buf := pool.Get().(*[pieceSize]byte)
		n, err := f.src.Read(buf[:])
		if n > 0 && !f.push(piece{data: buf[:n], buf: buf}) {
			return
		}
		if n == 0 {
			pool.Put(buf)
		}
		if err != nil {
			end := rstSeen
			if errors.Is(err, io.EOF) {
				end = finSeen
			}
			f.push(piece{end: end})
			return
		}
	}
}

// push queues a piece, waiting for room; false when the link is over.
func (f *flow) push(p piece) bool {
	l := f.link
	l.mu.Lock()
	defer l.mu.Unlock()
	for f.queued >= maxQueued && !f.hole && !l.over {
		f.cond.Wait()
	}
	if l.over {
		return false
	}
	if f.delay > 0 {
		p.due = time.Now().Add(f.delay)
	}
	f.queue = append(f.queue, p)
	f.queued += len(p.data)
	f.cond.Broadcast()
	return true
}

// write is the writer goroutine.
func (f *flow) write() {
	defer f.link.done()
	for {
		data, end, ok := f.next()
		switch {
		case !ok:
			return
		case end != running:
			f.link.pass(f, end)
			return
		}
		f.link.proxy.count(f.dir, len(data)) // before its receiver can look
		if _, err := f.dst.Write(data); err != nil {
			f.link.lost(f)
		}
	}
}

// next waits for bytes that may leave now, or for the end.
func (f *flow) next() (data []byte, end ending, ok bool) {
	l := f.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.spent != nil {
		pool.Put(f.spent)
		f.spent = nil
	}
	for !l.over {
		f.fire()
		if f.hole || f.ended {
			if f.discard() {
				l.quiet(f)
				return nil, running, false
			}
		} else if len(f.queue) > 0 && !f.held {
			if data, end, ok = f.take(); ok {
				return data, end, true
			}
			continue
		}
		f.cond.Wait()
	}
	return nil, running, false
}

// fire applies the armed faults whose byte is the next one.
func (f *flow) fire() {
	for len(f.armed) > 0 && f.armed[0].at <= f.off && !f.link.over {
		a := f.armed[0]
		f.armed = f.armed[1:]
		f.link.apply(f, a.fault)
	}
}

// take cuts the bytes that may leave now off the queue. ok false means: look
// again, after having waited if it is not time yet.
func (f *flow) take() (data []byte, end ending, ok bool) {
	p := &f.queue[0]
	if wait := time.Until(f.when(p)); wait > 0 {
		t := time.AfterFunc(wait, f.wake)
		f.cond.Wait()
		t.Stop()
		return nil, running, false
	}
	if p.end != running {
		return nil, p.end, true
	}
	n := f.allowed(len(p.data))
	data = p.data[:n]
	p.data = p.data[n:]
	f.off += int64(n)
	f.queued -= n
	if len(p.data) == 0 {
		f.spent = p.buf
		f.queue = f.queue[1:]
		f.cond.Broadcast()
	}
	if f.drop > 0 {
		f.drop -= int64(n)
		f.link.proxy.discarded.Add(uint64(n))
		if f.spent != nil {
			pool.Put(f.spent)
			f.spent = nil
		}
		return nil, running, false
	}
	if f.flip > 0 {
		for i := range data {
			data[i] ^= f.mask
		}
		f.flip -= int64(n)
	}
	return data, running, true
}

func (f *flow) when(p *piece) time.Time {
	if f.rate > 0 && f.free.After(p.due) {
		return f.free
	}
	return p.due
}

// allowed is how many of n bytes go together: up to the next armed fault, the
// end of a drop or flip, and the throttle's step.
func (f *flow) allowed(n int) int {
	m := int64(n)
	if len(f.armed) > 0 {
		m = min(m, f.armed[0].at-f.off)
	}
	if f.drop > 0 {
		m = min(m, f.drop)
	} else if f.flip > 0 {
		m = min(m, f.flip)
	}
	if f.rate > 0 {
		m = min(m, max(1, f.rate/throttleStep))
		now := time.Now()
		if f.free.Before(now) {
			f.free = now
		}
		f.free = f.free.Add(time.Duration(m) * time.Second / time.Duration(f.rate))
	}
	return int(m)
}

// discard empties the queue; true when the source has ended.
func (f *flow) discard() (over bool) {
	for _, p := range f.queue {
		// The buffers are left to the collector: a write may still be in one.
		f.off += int64(len(p.data))
		f.link.proxy.discarded.Add(uint64(len(p.data)))
		over = over || p.end != running
	}
	f.queue, f.queued = nil, 0
	f.cond.Broadcast()
	return over
}

func (f *flow) wake() {
	f.link.mu.Lock()
	f.cond.Broadcast()
	f.link.mu.Unlock()
}
