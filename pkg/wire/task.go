package wire

import (
	"math/bits"
	"sync/atomic"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/tagset"
)

// AnsweredBit in blk.Command.Tx says that the response is in; the low bits
// count what of the sender still refers to the payload. Whoever makes the
// value exactly AnsweredBit completes the command.
const AnsweredBit = 1 << 31

// Task is one entry of the tag table: what is known of the command with that
// tag. Whoever took the tag fills it and pushes the command to the sender
// (which orders it before everything the sender does); the sender publishes
// it to the reader by live. What only the protocol knows of it is in a table
// of the codec's, at the same index.
type Task struct {
	// live is the task's ID and, in the high half, the coarse clock of its
	// sending; 0 while not on the wire. Written by the sender (publish), by the
	// reader (retire). A stale read by the ticker only delays a timeout.
	live atomic.Uint64
	// jobsDone counts the transfers asked for that are wholly encoded. Written by
	// the sender before the send, read by the reader to hold the peer to its limit;
	// a stale value is refreshed by the peer's own causality: it can only ask for
	// more after it has received what was counted.
	jobsDone atomic.Uint32

	gen   uint32 // of the holder of the tag
	id    uint32 // of this generation
	Index uint16 // in the table: the tag

	// Set by the holder before the push, constant until the tag is put back.
	Cmd  *blk.Command
	Unit *Unit
	Ctl  *Control // the command is a control's carrier
	// Set by the sender before it publishes the task.
	Out  []byte // payload to the target, unless it is Cmd's in pieces
	Size int    // of the payload to the target, bytes

	// Asked counts the transfers asked for so far. Reader's.
	Asked uint32
	// Slots of their answers: filled by the reader, emptied by the sender. Both made
	// at the tag's first need: many never have one.
	jobs  *[MaxAsked]Job
	unsol *Job // unsolicited data: sender's
}

// ID is the task's name on the wire.
func (k *Task) ID() uint32 { return k.id }

// Live reports whether the task is on the wire. Reader, ticker.
func (k *Task) Live() bool { return k.live.Load() != 0 }

// Age is how many ticks ago a live task was sent.
func (k *Task) Age(now uint32) uint32 { return now - uint32(k.live.Load()>>32) }

// Unpublish takes the task off the wire without giving its tag back. Reader only.
func (k *Task) Unpublish() { k.live.Store(0) }

// Reads reports whether the command takes data in.
func (k *Task) Reads() bool { return k.Cmd.Op == blk.Read }

// Expected is how many bytes the command moves.
func (k *Task) Expected() uint32 {
	if k.Size > 0 {
		return uint32(k.Size)
	}
	if k.Reads() {
		return k.Cmd.Len
	}
	return 0
}

// gate is the one the task waits at; nil: at none.
func (k *Task) gate() *Gate {
	switch {
	case k.Ctl != nil:
		return k.Ctl.Gated
	case k.Unit != nil:
		return k.Unit.Gate
	}
	return nil
}

// Job is a run of payload to send: a transfer asked for, or unsolicited.
type Job struct {
	next      *Job
	Task      *Task
	Cmd       *blk.Command
	Tag       uint32 // the peer's, of the transfer
	Off, Left uint32 // bytes
	Seq       uint32 // PDUs sent of it
	solicited bool
}

// NextPtr makes Job a member of an mpsc.Queue.
func (j *Job) NextPtr() **Job { return &j.next }

// IDs says how tags and generations make the IDs of a protocol.
type IDs struct {
	Bits uint   // of an ID: 16 or 32
	None uint32 // an ID that is never used, besides 0
}

// Tasks is the tag table. Data commands take tags from data, everything else
// from control, so that recovery always finds one. Standing tasks are out for
// ever, and count as nothing.
type Tasks struct {
	data, control *tagset.Set
	base          int // of the control tags
	standing      int // index of the first standing task
	shift         uint
	index, gens   uint32 // masks
	none          uint32
	table         []Task
	Stale         atomic.Uint64 // answers to tags that were reused or free
}

// TableSize is the most tasks of any table.
const TableSize = 1 << 16

// NewTasks makes a table for depth data commands of that many homes, 0 for none,
// and the given numbers of control and standing ones.
func NewTasks(ids IDs, depth, homes, control, standing int) *Tasks {
	t := &Tasks{control: tagset.New(control, 1), none: ids.None}
	if depth > 0 {
		// Words of tags are sparse: too many of them make the table large.
		t.data = tagset.New(depth, min(homes, max(1, depth/tagsPerHome)))
		t.base = t.data.Bound()
	}
	t.standing = t.base + control
	t.table = make([]Task, t.standing+standing)
	t.shift = min(uint(bits.Len(uint(len(t.table)-1))), 16)
	if ids.Bits == 32 {
		t.shift = 16
	}
	t.index, t.gens = 1<<t.shift-1, 1<<(ids.Bits-t.shift)-1
	for i := range t.table {
		t.table[i].Index = uint16(i)
	}
	return t
}

// Len is the size of the table.
func (t *Tasks) Len() int { return len(t.table) }

// At is the task with index i.
func (t *Tasks) At(i int) *Task { return &t.table[i] }

// Of is the task of a command that has a tag.
func (t *Tasks) Of(c *blk.Command) *Task { return &t.table[c.Tag&t.index] }

// IsStanding reports whether k is one of the standing tasks.
func (t *Tasks) IsStanding(k *Task) bool { return int(k.Index) >= t.standing }

// get takes a data tag, nil when there is none now.
func (t *Tasks) get(home int) *Task {
	tag := t.data.Get(home)
	if tag < 0 {
		return nil
	}
	return t.renew(&t.table[tag])
}

// getControl takes a tag kept for recovery and control.
func (t *Tasks) getControl() *Task {
	tag := t.control.Get(0)
	if tag < 0 {
		return nil
	}
	return t.renew(&t.table[t.base+tag])
}

// renew starts a new generation of the tag. An ID is never 0: that marks a task
// that is not live.
func (t *Tasks) renew(k *Task) *Task {
	for {
		k.gen = (k.gen + 1) & t.gens
		k.id = k.gen<<t.shift | uint32(k.Index)
		if k.gen != 0 && k.id != t.none {
			break
		}
	}
	k.Asked = 0
	k.jobsDone.Store(0)
	return k
}

// Put gives the tag back.
func (t *Tasks) Put(k *Task) {
	k.Cmd, k.Unit, k.Ctl, k.Out, k.Size = nil, nil, nil, nil, 0
	switch i := int(k.Index); {
	case i < t.base:
		t.data.Put(i)
	case i < t.standing:
		t.control.Put(i - t.base)
	}
}

// Find returns the live task with the given ID; nil for a stale one, which is
// counted. ok is false for an ID that cannot exist.
func (t *Tasks) Find(id uint32) (k *Task, ok bool) {
	i := int(id & t.index)
	if i >= len(t.table) || id == t.none {
		return nil, false
	}
	k = &t.table[i]
	if uint32(k.live.Load()) != id {
		t.Stale.Add(1)
		return nil, true
	}
	return k, true
}

// Outstanding reports whether any tag is out.
func (t *Tasks) Outstanding() bool {
	return !t.Idle() || t.control.Free() != t.control.Depth()
}

// Idle reports whether no data tag is out.
func (t *Tasks) Idle() bool { return t.data == nil || t.data.Free() == t.data.Depth() }

// TooOld reports whether a task has been on the wire long enough for the
// reader to look at it. Ticker.
func (t *Tasks) TooOld(now, dataTicks, controlTicks uint32) bool {
	for i := range t.table[:t.standing] {
		k := &t.table[i]
		if !k.Live() {
			continue
		}
		limit := dataTicks
		if i >= t.base {
			limit = min(dataTicks, controlTicks)
		}
		if k.Age(now) >= limit {
			return true
		}
	}
	return false
}
