package datapath

import (
	"sync/atomic"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// entry says what write-class request a slot has in flight. 32 bytes, plain
// words, so that the table can lie in a mapped file that outlives the process.
//
// Written by the lane's runner (publish) and by whoever answers or loses the
// request (clear); never both at once, because a slot is in flight at most
// once. Read by the doubt registry under its lock. state is stored last and
// cleared first. A reader that sees an entry already cleared waits a little
// longer than it must; it can not miss one, because publish comes before the
// publisher's look at doubt.active, and the registry raises active before it
// reads entries (both sequentially consistent).
type entry struct {
	off   atomic.Uint64
	meta  atomic.Uint64 // length in the low 32 bits, operation above
	state atomic.Uint64 // path index << 32 | incarnation; 0 = nothing in flight
	_     uint64
}

func (e *entry) publish(r *blk.Request, lv *live) {
	e.off.Store(r.Off)
	if meta := uint64(r.Op)<<32 | uint64(r.Len); e.meta.Load() != meta {
		e.meta.Store(meta) // rarely: clients write in one size
	}
	e.state.Store(uint64(lv.path.index)<<32 | uint64(lv.inc))
}

func (e *entry) clear() { e.state.Store(0) }

// overlaps reports whether the entry is in flight and touches off..end.
func (e *entry) overlaps(off, end uint64) bool {
	if e.state.Load() == 0 {
		return false
	}
	o, n := e.off.Load(), e.meta.Load()&0xffffffff
	return o < end && off < o+n
}
