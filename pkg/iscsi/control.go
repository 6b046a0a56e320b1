package iscsi

import (
	"sync/atomic"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
)

type controlKind uint8

const (
	ctlExec   controlKind = iota // a SCSI command of Exec
	ctlPing                      // our NOP-Out
	ctlPong                      // answer to the target's NOP-In: has no tag
	ctlTMF                       // task management
	ctlText                      // one leg of a text exchange
	ctlLogout                    // the end
)

// The fates of a control.
const (
	fateOpen = iota
	fateAnswered
	fateAbandoned
)

// control is anything but a blk.Command of a LUN. It is made by whoever wants
// it, encoded by the sender, ended by the reader or the retirer, once. The
// fields under "outcome" are valid after done is closed.
type control struct {
	next *control
	kind controlKind
	task *task // nil for a pong
	// gated: it is I/O to this unit, and kept while that is in question.
	gated *LUN
	cmd   blk.Command
	lun   uint64
	cdb   [16]byte
	out   []byte // payload of exec, text

	ttt      uint32 // pong, text
	function uint8  // TMF
	refTag   uint32 // TMF
	refSN    uint32 // TMF
	seq      uint64 // TMF: commands sent before it have a lower Seq; sender's

	// fate says whether the answer or the caller's giving up came first: one of
	// reader and caller takes it from fateOpen. The sender reads it and does not
	// send what nobody waits for.
	fate atomic.Uint32

	onDone func() // called by the reader when it ended; must not block

	// Outcome.
	done     chan struct{}
	err      error
	response uint8 // status of exec, response code of others
	sense    []byte
	residual pdu.Residual
	text     []byte
	final    bool   // text: no more to come
	more     bool   // text: C bit
	nextTTT  uint32 // text
}

// NextPtr makes control a member of an mpsc.Queue.
func (c *control) NextPtr() **control { return &c.next }

// newControl takes a tag for a control; nil when there is none.
func (m *machine) newControl(kind controlKind) *control {
	k := m.tasks.getControl()
	if k == nil {
		return nil
	}
	c := &control{kind: kind, task: k, done: make(chan struct{}, 1)}
	k.cmd, k.ctl = &c.cmd, c
	c.cmd.Tag = k.itt()
	c.cmd.Op = blk.Flush // moves no data unless said otherwise
	return c
}

// queue gives a control to the sender. Commands go with the commands, the
// rest is immediate.
func (m *machine) queue(c *control) {
	if c.kind == ctlExec {
		m.tx.inbox.Push(&c.cmd)
	} else {
		m.tx.ctlq.Push(c)
	}
}

// finishControl ends a control and gives its tag back.
func (m *machine) finishControl(k *task, err error) {
	c := k.ctl
	c.err = err
	k.live.Store(0)
	m.tasks.put(k)
	close(c.done)
	if c.onDone != nil {
		c.onDone()
	}
}

// control encodes what waits, all immediate: no CmdSN is used up.
func (t *transmitter) control() {
	t.ctls.push(t.ctlq.Drain())
	t.rouse()
	for t.ctls.head != nil && t.room(copyLimit, 0) {
		c := t.ctls.pop()
		if c.task != nil {
			c.seq = t.seq
			// Published first: the answer finds the task whenever it comes.
			c.task.live.Store(uint64(t.m.tick.Load())<<32 | uint64(c.cmd.Tag))
		}
		t.putControl(c)
	}
}

func (t *transmitter) putControl(c *control) {
	h, exp := t.header(), t.m.expStatSN.Load()
	switch c.kind {
	case ctlPing:
		(&pdu.NOPOut{Immediate: true, ITT: c.cmd.Tag, TTT: pdu.NoTag, CmdSN: t.cmdSN, ExpStatSN: exp}).Put(h)
	case ctlPong:
		(&pdu.NOPOut{Immediate: true, LUN: c.lun, ITT: pdu.NoTag, TTT: c.ttt, CmdSN: t.cmdSN, ExpStatSN: exp}).Put(h)
		t.m.rx.pongs.Add(-1)
	case ctlTMF:
		(&pdu.TMFRequest{Immediate: true, Function: c.function, LUN: c.lun, ITT: c.cmd.Tag, RefTag: c.refTag,
			RefCmdSN: c.refSN, CmdSN: t.cmdSN, ExpStatSN: exp}).Put(h)
	case ctlText:
		(&pdu.TextRequest{Immediate: true, Final: true, ITT: c.cmd.Tag, TTT: c.ttt, CmdSN: t.cmdSN,
			ExpStatSN: exp, DataLen: len(c.out)}).Put(h)
	case ctlLogout:
		(&pdu.LogoutRequest{Immediate: true, Reason: pdu.LogoutSession, ITT: c.cmd.Tag, CmdSN: t.cmdSN, ExpStatSN: exp}).Put(h)
	}
	t.pdu(c.out, &c.cmd)
}
