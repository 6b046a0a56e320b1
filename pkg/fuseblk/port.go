package fuseblk

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
)

// port gives requests to the one lane of an export, and waits for each: whoever
// comes from the kernel has a goroutine of its own.
type port struct {
	export nbd.Export
	lane   nbd.Lane
	slots  [Depth]slot
	free   chan *slot
	// mu is for Lane.Submit, which wants one caller at a time, and for closed.
	mu     sync.Mutex
	closed bool
}

// slot is one outstanding request. done has room for its one answer.
type slot struct {
	req  blk.Request
	done chan struct{}
}

func newPort(e nbd.Export) (*port, error) {
	lane, err := e.OpenLane(Depth)
	if err != nil {
		return nil, err
	}
	p := &port{export: e, lane: lane, free: make(chan *slot, Depth)}
	for i := range p.slots {
		s := &p.slots[i]
		s.req.Slot, s.req.Owner, s.done = uint32(i), p, make(chan struct{}, 1)
		p.free <- s
	}
	return p, nil
}

// Complete implements blk.Completer.
func (p *port) Complete(r *blk.Request) { p.slots[r.Slot].done <- struct{}{} }

// Flush implements blk.Completer: answers are not held back.
func (p *port) Flush() {}

// do has one request carried out. buf is the payload or the destination of all of
// it, and is not touched after do has returned.
func (p *port) do(op blk.Op, flags blk.Flags, off uint64, n uint32, buf []byte) unix.Errno {
	s := <-p.free
	defer func() { s.req.Buf = nil; p.free <- s }()
	r := &s.req
	r.Op, r.Flags, r.Off, r.Len, r.Buf, r.Status, r.Next = op, flags, off, n, buf, blk.OK, nil
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return unix.EIO
	}
	p.lane.Submit(r)
	p.mu.Unlock()
	<-s.done
	return errnoOf(r.Status)
}

// close ends the lane: what is not on a wire comes back at once, the rest when it
// is answered.
func (p *port) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		p.lane.Close()
	}
}

// errnoOf is what the kernel is told of an outcome. File systems know what to do
// about a few errors only.
func errnoOf(s blk.Status) unix.Errno {
	switch s {
	case blk.OK:
		return 0
	case blk.NoSpace:
		return unix.ENOSPC
	case blk.Invalid:
		return unix.EINVAL
	case blk.NotPermitted, blk.Conflict:
		return unix.EPERM
	case blk.Unsupported:
		return unix.EOPNOTSUPP
	}
	return unix.EIO
}
