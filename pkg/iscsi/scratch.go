package iscsi

import (
	"sync"

	"golang.org/x/sys/unix"
)

// scratch is the room of one batch. Thousands of sessions share as many as
// there are senders at a time.
type scratch struct {
	arena [sendArena]byte
	iov   [batchIovecs]unix.Iovec
	refs  [batchIovecs]ref
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// borrow takes a scratch, unless there is one already.
func (t *transmitter) borrow() {
	if t.scratch != nil {
		return
	}
	s := scratches.Get().(*scratch)
	t.scratch, t.arena, t.iov, t.refs = s, s.arena[:], s.iov[:0], s.refs[:0]
}

// giveBack returns the scratch: nothing of it is in use.
func (t *transmitter) giveBack() {
	scratches.Put(t.scratch)
	t.scratch, t.arena, t.iov, t.refs = nil, nil, nil, nil
}
