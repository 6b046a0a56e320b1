package iscsi

import (
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/wire"
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

// control is a wire.Control with what only iSCSI knows of it. The fields under
// "outcome" are valid after Done is closed.
type control struct {
	wire.Control // Out is the payload of exec, text
	next         *control
	kind         controlKind
	lun          uint64
	cdb          [16]byte

	ttt      uint32 // pong, text
	function uint8  // TMF
	refTag   uint32 // TMF
	refSN    uint32 // TMF
	seq      uint64 // TMF: commands sent before it have a lower Seq; sender's

	// Outcome.
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
	c := &control{kind: kind}
	if !m.NewControl(&c.Control) {
		return nil
	}
	m.renew(c.Task, nil, c)
	return c
}

// queue gives a control to the sender. Commands go with the commands, the
// rest is immediate.
func (m *machine) queue(c *control) {
	if c.kind == ctlExec {
		m.PushControl(&c.Control)
	} else {
		m.tx.ctlq.Push(c)
	}
}

// Urgent implements wire.Codec: what waits of the controls, all immediate: no
// CmdSN is used up.
func (m *machine) Urgent() {
	t := &m.tx
	t.shut.Store(0)
	t.ctls.Push(t.ctlq.Drain())
	m.Clock.Rouse()
	for t.ctls.Head != nil && m.Out.Room(wire.CopyLimit, 0) {
		c := t.ctls.Pop()
		if c.Task != nil {
			c.seq = m.Publish(&c.Control)
		}
		t.putControl(c)
	}
}

func (t *transmitter) putControl(c *control) {
	h, exp := t.header(), t.m.expStatSN.Load()
	switch c.kind {
	case ctlPing:
		(&pdu.NOPOut{Immediate: true, ITT: c.Cmd.Tag, TTT: pdu.NoTag, CmdSN: t.cmdSN, ExpStatSN: exp}).Put(h)
	case ctlPong:
		(&pdu.NOPOut{Immediate: true, LUN: c.lun, ITT: pdu.NoTag, TTT: c.ttt, CmdSN: t.cmdSN, ExpStatSN: exp}).Put(h)
		t.m.rx.pongs.Add(-1)
	case ctlTMF:
		(&pdu.TMFRequest{Immediate: true, Function: c.function, LUN: c.lun, ITT: c.Cmd.Tag, RefTag: c.refTag,
			RefCmdSN: c.refSN, CmdSN: t.cmdSN, ExpStatSN: exp}).Put(h)
	case ctlText:
		(&pdu.TextRequest{Immediate: true, Final: true, ITT: c.Cmd.Tag, TTT: c.ttt, CmdSN: t.cmdSN,
			ExpStatSN: exp, DataLen: len(c.Out)}).Put(h)
	case ctlLogout:
		(&pdu.LogoutRequest{Immediate: true, Reason: pdu.LogoutSession, ITT: c.Cmd.Tag, CmdSN: t.cmdSN, ExpStatSN: exp}).Put(h)
	}
	t.pdu(c.Out, &c.Cmd)
}
