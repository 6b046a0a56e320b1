package iscsi

import (
	"sync/atomic"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/mpsc"
	"github.com/csi-mpath/csi-mpath/pkg/wire"
)

// transmitter is the transmit half of the codec. Producers push into ctlq from
// any goroutine; all else belongs to the holder of the sender flag.
type transmitter struct {
	m *machine

	ctlq mpsc.Queue[control, *control] // written by producers, drained by the holder
	// shut is 1<<32 | the CmdSN that waits for the window, 0 when none does.
	// Written by the holder; the reader kicks when the window reaches it, the
	// holder looks once more after it gave up the flag: one of them sees.
	shut atomic.Uint64

	// Holder's.
	ctls  wire.Fifo[control, *control] // what waits, oldest first
	cmdSN uint32
}

// Waiting implements wire.Codec.
func (m *machine) Waiting() bool {
	if !m.tx.ctlq.Empty() {
		return true
	}
	v := m.tx.shut.Load()
	return v != 0 && !pdu.SNLess(m.maxCmdSN.Load(), uint32(v))
}

// header is where the next PDU's header goes.
func (t *transmitter) header() []byte { return t.m.Out.Next(pdu.HeaderLen + pdu.DigestLen) }

// putHeader adds the header at t.header() to the batch.
func (t *transmitter) putHeader() {
	t.m.Out.Put(pdu.HeaderLen + t.m.p.PutHeaderDigest(t.header()))
}

// putTrailer adds what follows n bytes of payload.
func (t *transmitter) putTrailer(n int, sum uint32) {
	t.m.Out.Put(t.m.p.PutTrailer(t.m.Out.Next(2*pdu.DigestLen), n, sum))
}

// pdu completes the PDU whose header is at t.header(). A large payload goes by
// reference and c is kept until it is sent.
func (t *transmitter) pdu(payload []byte, c *blk.Command) {
	t.putHeader()
	if n := len(payload); n > 0 {
		t.putTrailer(n, t.m.Out.Bytes(payload, c))
	}
}

// data is pdu with n bytes of k's payload from off.
func (t *transmitter) data(k *wire.Task, off, n int) {
	t.putHeader()
	if n > 0 {
		t.putTrailer(n, t.m.Out.Payload(k, off, n))
	}
}

// Command implements wire.Codec: one SCSI command, with as much of its payload as
// may go unasked, if the window lets it. CmdSN is given here and nowhere
// earlier: a command dropped before leaves no hole.
func (m *machine) Command(k *wire.Task, c *blk.Command) bool {
	t := &m.tx
	if pdu.SNLess(m.maxCmdSN.Load(), t.cmdSN) {
		t.shut.Store(1<<32 | uint64(t.cmdSN))
		return false
	}
	x := m.of(k)
	h := pdu.SCSICommand{Final: true, Attr: pdu.AttrSimple, ITT: c.Tag, CmdSN: t.cmdSN, ExpStatSN: m.expStatSN.Load()}
	if x.ctl != nil {
		h.LUN, h.CDB, k.Out, k.Size = x.ctl.lun, x.ctl.cdb, x.ctl.Out, len(x.ctl.Out)
		h.Read, h.Write = c.Op == blk.Read, k.Size > 0
	} else {
		h.LUN = uint64(x.lun.lun)
		x.lun.form.Load().encode(&h, k, x)
	}
	immediate, unsolicited := m.p.split(k.Size)
	h.EDTL, h.DataLen, h.Final = k.Expected(), immediate, unsolicited == 0
	if k.Size > 0 {
		c.Moved = uint32(immediate + unsolicited)
	}
	x.cmdSN = t.cmdSN
	t.cmdSN++
	h.Put(t.header())
	t.data(k, 0, immediate)
	if unsolicited > 0 {
		m.Unsolicited(k, pdu.NoTag, immediate, unsolicited)
	}
	return true
}

// split says how many bytes of a payload of n go with the command, and how
// many follow unsolicited.
func (p *Params) split(n int) (immediate, unsolicited int) {
	burst := min(n, int(p.FirstBurst))
	if p.ImmediateData {
		immediate = min(burst, int(p.MaxSend))
	}
	if !p.InitialR2T {
		unsolicited = burst - immediate
	}
	return immediate, unsolicited
}

// Data implements wire.Codec: a Data-Out (RFC 7143 11.7).
func (m *machine) Data(j *wire.Job, n int) {
	h := pdu.DataOut{Final: n == int(j.Left), ITT: j.Cmd.Tag, TTT: j.Tag, ExpStatSN: m.expStatSN.Load(),
		DataSN: j.Seq, Offset: j.Off, DataLen: n}
	if x := m.of(j.Task); x.ctl != nil {
		h.LUN = x.ctl.lun
	} else {
		h.LUN = uint64(x.lun.lun)
	}
	h.Put(m.tx.header())
	m.tx.data(j.Task, int(j.Off), n)
}
