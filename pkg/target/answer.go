package target

import (
	"encoding/binary"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// window is the sequence numbers of the next PDU; status: it takes a StatSN.
func (c *conn) window(status bool) pdu.Window {
	w := pdu.Window{StatSN: c.statSN, ExpCmdSN: c.sess.expCmdSN, MaxCmdSN: c.sess.maxCmdSN}
	if status {
		c.statSN++
	}
	return w
}

// check answers CHECK CONDITION.
func (m *Machine) check(t *task, s scsi.Sense) {
	if t.unit != nil && t.unit.descriptors {
		m.answer(t, scsi.StatusCheckCondition, s.AppendDescriptor(nil))
		return
	}
	var b [scsi.SenseLen]byte
	m.answer(t, scsi.StatusCheckCondition, s.AppendFixed(b[:0]))
}

// residual compares what the initiator expected with what the command has.
func residual(edtl uint32, actual uint64) pdu.Residual {
	switch {
	case actual > uint64(edtl):
		return pdu.Residual{Overflow: true, Count: uint32(min(actual-uint64(edtl), 1<<32-1))}
	case actual < uint64(edtl):
		return pdu.Residual{Underflow: true, Count: edtl - uint32(actual)}
	}
	return pdu.Residual{}
}

// good answers GOOD for a command that moved no data to the initiator.
func (m *Machine) good(t *task) { m.answer(t, scsi.StatusGood, nil) }

// answer ends a task with a SCSI Response.
func (m *Machine) answer(t *task, status byte, sense []byte) {
	if m.silent(t) {
		return
	}
	if t.Spoil != nil {
		m.encloseStatus(t, status, sense)
		return
	}
	m.end(t)
	t.conn.statusResponse(t, status, sense, uint64(m.wants(t)))
	m.free(t)
}

// statusResponse sends a SCSI Response for a command that moved actual bytes.
func (c *conn) statusResponse(t *task, status byte, sense []byte, actual uint64) {
	p := pdu.SCSIResponse{Status: status, ITT: t.itt, ExpDataSN: t.r2tSN, Window: c.window(true)}
	if status == scsi.StatusGood {
		p.Residual = residual(t.edtl, actual)
	}
	if len(sense) > 0 {
		p.DataLen = 2 + len(sense)
	}
	p.Put(c.head())
	c.seal()
	if len(sense) > 0 {
		b := c.Out.Room(p.DataLen)
		binary.BigEndian.PutUint16(b, uint16(len(sense)))
		copy(b[2:], sense)
		c.trail(p.DataLen, b)
	}
	c.Touch()
}

// silent ends tasks nobody gets an answer of: late ones, and those whose
// answer a fault drops.
func (m *Machine) silent(t *task) bool {
	switch {
	case t.conn == nil:
		m.NotLate()
		s := t.sess
		m.end(t)
		m.free(t)
		if len(s.tasks) == 0 && s.conn == nil && m.sessions[s.key] == s {
			delete(m.sessions, s.key)
		}
	case t.Mute:
		m.end(t) // the window opens, as the next answer says
		m.free(t)
	default:
		return false
	}
	return true
}

func (m *Machine) end(t *task) {
	m.stats.Answered++
	m.unlist(t)
	m.open(t)
}

// reply ends a task with parameter data, cut to the allocation length.
func (m *Machine) reply(t *task, data []byte) {
	data = data[:min(len(data), int(t.cmd.Alloc))]
	if m.silent(t) {
		return
	}
	c, n := t.conn, m.sendable(t, uint64(len(data)))
	if t.Spoil != nil {
		m.enclose(t, scsi.StatusGood, data[:n], uint64(len(data)))
		return
	}
	m.end(t)
	c.dataIn(t, n, uint64(len(data)), func(off, k int) { c.data(data[off : off+k]) })
	m.free(t)
}

// sendable is how many of actual bytes the initiator takes.
func (m *Machine) sendable(t *task, actual uint64) int {
	if !t.read {
		return 0
	}
	return int(min(uint64(t.edtl), actual))
}

// dataIn sends n bytes, of actual the command has, as Data-In PDUs, the status
// GOOD in the last (RFC 7143 11.7); segment adds the data of one. With nothing
// to send the status goes in a SCSI Response.
func (c *conn) dataIn(t *task, n int, actual uint64, segment func(off, k int)) {
	res := pdu.Residual{}
	if t.read {
		res = residual(t.edtl, actual)
	} else if actual > 0 {
		res = pdu.Residual{Overflow: true, Count: uint32(min(actual, 1<<32-1))}
	}
	defer c.Touch()
	if n == 0 {
		p := pdu.SCSIResponse{Status: scsi.StatusGood, ITT: t.itt, Residual: res, Window: c.window(true)}
		p.Put(c.head())
		c.seal()
		return
	}
	burst := 0
	for off, sn := 0, uint32(0); off < n; sn++ {
		k := min(n-off, int(c.params.maxSend), int(c.params.maxBurst)-burst)
		last := off+k == n
		p := pdu.DataIn{LUN: t.lun, ITT: t.itt, TTT: pdu.NoTag, DataSN: sn, Offset: uint32(off), DataLen: k}
		if burst += k; last || burst == int(c.params.maxBurst) {
			p.Final, burst = true, 0
		}
		p.Window = c.window(last)
		if last {
			p.HasStatus, p.Residual = true, res
		} else {
			p.StatSN = 0
		}
		p.Put(c.head())
		c.seal()
		segment(off, k)
		off += k
	}
}
