package iscsi

import (
	"sync/atomic"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/tagset"
)

// answeredBit in blk.Command.Tx says that the response is in; the low bits
// count what of the sender still refers to the payload. Whoever makes the
// value exactly answeredBit completes the command.
const answeredBit = 1 << 31

// task is one entry of the tag table: what is known of the command with that
// tag. Whoever took the tag fills it and pushes the command to the sender
// (which orders it before everything the sender does); the sender publishes
// it to the reader by live.
type task struct {
	// live is the task's ITT and, in the high half, the coarse clock of its
	// sending; 0 while not on the wire. Written by the sender (publish), by the
	// reader (retire). A stale read by the ticker only delays a timeout.
	live atomic.Uint64
	// jobsDone counts the R2T answers wholly encoded. Written by the sender
	// before the send, read by the reader to hold the target to
	// MaxOutstandingR2T; a stale value is refreshed by the target's own causality:
	// it can only ask for more after it has received what was counted.
	jobsDone atomic.Uint32
	_        [4]byte

	gen uint16 // of the holder of the tag
	tag uint16
	// Set by the holder before the push, constant until the tag is put back.
	cmd *blk.Command
	lun *LUN
	ctl *control // the command is a control's carrier
	// Set by the sender before it publishes the task.
	out   []byte // payload to the target, unless it is cmd's in pieces
	size  int    // of the payload to the target, bytes
	small [unmapParam]byte
	cmdSN uint32

	// Reader's.
	dataSN, r2tSN uint32
	empty         uint8
	aborting      bool // an ABORT TASK for it is out
	// Slots of R2T answers: filled by the reader, emptied by the sender. Both made
	// at the tag's first need: many never have one.
	jobs  *[offerOutstandingR2T]job
	unsol *job // unsolicited data: sender's
}

const unmapParam = 24

// job is a sequence of Data-Out to send: the answer to an R2T, or unsolicited.
type job struct {
	next           *job
	task           *task
	cmd            *blk.Command
	ttt            uint32
	off, left, seq uint32
	solicited      bool
}

// NextPtr makes job a member of an mpsc.Queue.
func (j *job) NextPtr() **job { return &j.next }

// tasks is the tag table. Data commands take tags from data, everything else
// from control, so that recovery always finds one.
type tasks struct {
	data, control *tagset.Set
	base          int // of the control tags
	table         []task
	stale         atomic.Uint64 // answers to tags that were reused or free
}

func newTasks(depth, homes int) *tasks {
	// Words of tags are sparse: too many of them make the table large.
	homes = min(homes, max(1, depth/tagsPerHome))
	t := &tasks{data: tagset.New(depth, homes), control: tagset.New(controlTags, 1)}
	t.base = t.data.Bound()
	t.table = make([]task, t.base+controlTags)
	for i := range t.table {
		t.table[i].tag = uint16(i)
	}
	return t
}

// get takes a data tag, nil when there is none now.
func (t *tasks) get(home int) *task {
	tag := t.data.Get(home)
	if tag < 0 {
		return nil
	}
	return t.table[tag].renew()
}

// getControl takes a tag kept for recovery and control.
func (t *tasks) getControl() *task {
	tag := t.control.Get(0)
	if tag < 0 {
		return nil
	}
	return t.table[t.base+tag].renew()
}

// renew starts a new generation of the tag.
func (k *task) renew() *task {
	if k.gen++; k.gen == 0 {
		k.gen = 1 // an ITT is never 0: that marks a task that is not live
	}
	k.dataSN, k.r2tSN, k.empty, k.aborting = 0, 0, 0, false
	k.jobsDone.Store(0)
	return k
}

func (k *task) itt() uint32 { return uint32(k.gen)<<16 | uint32(k.tag) }

// unit is the unit at whose gate the task waits; nil: it waits at none.
func (k *task) unit() *LUN {
	if k.ctl != nil {
		return k.ctl.gated
	}
	return k.lun
}

// put gives the tag back.
func (t *tasks) put(k *task) {
	k.cmd, k.lun, k.ctl, k.out, k.size = nil, nil, nil, nil, 0
	if int(k.tag) < t.base {
		t.data.Put(int(k.tag))
	} else {
		t.control.Put(int(k.tag) - t.base)
	}
}

// find returns the live task with the given ITT; nil for a stale one, which
// is counted. A tag that cannot exist is a violation.
func (t *tasks) find(itt uint32) (*task, error) {
	tag := int(itt & 0xffff)
	if tag >= len(t.table) || itt == pdu.NoTag {
		return nil, violation("answer to task tag %#x, which was never given out", itt)
	}
	k := &t.table[tag]
	if uint32(k.live.Load()) != itt {
		t.stale.Add(1)
		return nil, nil
	}
	return k, nil
}

// outstanding reports whether any tag is out.
func (t *tasks) outstanding() bool {
	return t.data.Free() != t.data.Depth() || t.control.Free() != controlTags
}
