package nbd

import (
	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/proto"
)

// task is what a request's header asks of the lane. Op 0 with Status OK is
// answered at once: there is nothing to do.
type task struct {
	Op     blk.Op
	Flags  blk.Flags
	Status blk.Status
	Off    uint64
	Len    uint32
}

// check turns a header into a task (proto.md, "Request types" and "Error
// values"). DISC is not for it. Pure.
func check(q *proto.Request, i *Info, structured bool) task {
	t := task{Off: q.Off, Len: q.Len}
	if !flagsAllowed(q, structured) {
		return t.refuse(q, blk.Invalid)
	}
	switch q.Cmd {
	case proto.CmdFlush:
		if q.Off != 0 || q.Len != 0 {
			return t.refuse(q, blk.Invalid)
		}
		t.Op = blk.Flush
		return t
	case proto.CmdRead, proto.CmdCache:
		return t.ranged(q, i, blk.Invalid)
	case proto.CmdWrite, proto.CmdWriteZeroes, proto.CmdTrim:
		if i.Limits.ReadOnly {
			return t.refuse(q, blk.NotPermitted)
		}
		if q.Flags&proto.CmdFlagFUA != 0 {
			t.Flags |= blk.FUA
		}
		if q.Cmd == proto.CmdTrim {
			return t.ranged(q, i, blk.Invalid)
		}
		return t.ranged(q, i, blk.NoSpace)
	}
	return t.refuse(q, blk.Invalid)
}

// flagsAllowed: FUA is legal on every command (case C-07), the others only
// where they mean something and were offered.
func flagsAllowed(q *proto.Request, structured bool) bool {
	allowed := uint16(proto.CmdFlagFUA)
	switch {
	case q.Cmd == proto.CmdRead && structured:
		allowed |= proto.CmdFlagDF
	case q.Cmd == proto.CmdWriteZeroes:
		allowed |= proto.CmdFlagNoHole
	}
	return q.Flags&^allowed == 0
}

// ranged checks a command that names a range; past is what a range past the
// end is answered with.
func (t task) ranged(q *proto.Request, i *Info, past blk.Status) task {
	size, mask := i.size(), uint64(i.block()-1)
	payload := q.Cmd == proto.CmdRead || q.Cmd == proto.CmdWrite
	switch {
	case payload && q.Len > proto.MaxPayload:
		if q.Flags&proto.CmdFlagDF != 0 {
			return t.refuse(q, blk.Overflow)
		}
		return t.refuse(q, blk.Invalid)
	case q.Off > size || uint64(q.Len) > size-q.Off:
		return t.refuse(q, past)
	}
	switch q.Cmd {
	case proto.CmdCache:
		return t // a hint: nothing is cached here (I4)
	case proto.CmdTrim:
		// A hint too, so it shrinks to the whole blocks inside it (case C-13).
		first := (q.Off + mask) &^ mask
		last := (q.Off + uint64(q.Len)) &^ mask
		if i.Limits.MaxUnmap == 0 || first >= last {
			return t
		}
		t.Op, t.Off, t.Len = blk.Trim, first, uint32(last-first)
		return t
	}
	if (q.Off|uint64(q.Len))&mask != 0 {
		return t.refuse(q, blk.Invalid)
	}
	return t.whole(q)
}

// whole sets the operation of a range of whole blocks. An empty one has
// nothing to do; a read keeps its Op, which shapes its answer.
func (t task) whole(q *proto.Request) task {
	switch {
	case q.Cmd == proto.CmdRead:
		t.Op = blk.Read
	case q.Len == 0:
	case q.Cmd == proto.CmdWrite:
		t.Op = blk.Write
	default:
		t.Op = blk.WriteZeroes
		if q.Flags&proto.CmdFlagNoHole != 0 {
			t.Flags |= blk.NoUnmap
		}
	}
	return t
}

func (t task) refuse(q *proto.Request, s blk.Status) task {
	t.Op, t.Status = 0, s
	if q.Cmd == proto.CmdRead {
		t.Op = blk.Read // its answer is a chunk where structured replies were agreed
	}
	return t
}

// idle reports that the lane has nothing to do for t.
func (t *task) idle() bool {
	return t.Status != blk.OK || t.Op == 0 || (t.Op == blk.Read && t.Len == 0)
}
