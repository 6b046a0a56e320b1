package iscsi

import (
	"sync/atomic"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/wire"
)

// receiver is the receive half of the codec. Reader's.
type receiver struct {
	m *machine

	task   *wire.Task // whose payload is landing; nil: it is whole in other
	din    pdu.DataIn
	header [pdu.HeaderLen]byte
	other  []byte // a large data segment of another PDU, being collected

	// pongs counts answers to pings that wait to be sent. Written by reader and sender.
	pongs atomic.Int32
	stats rxStats
}

// rxStats counts oddities that are tolerated. Reader's.
type rxStats struct {
	vendorEvents int
}

// Trailer implements wire.Parser.
func (m *machine) Trailer(n int) int { return m.p.Trailer(n) }

// Check implements wire.Parser.
func (m *machine) Check(trailer []byte, n int, sum uint32) error {
	if err := m.p.CheckTrailer(trailer, n, sum); err != nil {
		return violation("%v", err)
	}
	return nil
}

// Header implements wire.Parser. Data-In lands where it belongs; everything else
// is handled when it is whole.
func (m *machine) Header(avail []byte) (more bool, err error) {
	if len(avail) < pdu.HeaderLen {
		return false, nil
	}
	r, p, start := &m.rx, &m.p, m.p.DataStart(pdu.AHSLen(avail))
	n := pdu.DataLen(avail)
	op, _ := pdu.Op(avail)
	if n > int(p.MaxRecv) {
		return false, violation("%v with a data segment of %d bytes, %d allowed", op, n, p.MaxRecv)
	}
	if n > maxOtherData && op != pdu.OpDataIn && op != pdu.OpTextResponse {
		return false, violation("%v with a data segment of %d bytes", op, n)
	}
	if len(avail) < start {
		return false, nil
	}
	if err := p.CheckHeader(avail[:start]); err != nil {
		return false, violation("%v", err)
	}
	if op == pdu.OpDataIn {
		return true, r.startData(avail, start, n)
	}
	whole := start + n + p.Trailer(n)
	all, fits := m.In.Whole(whole)
	switch {
	case all:
		data := avail[start : start+n]
		if err := m.Check(avail[start+n:whole], n, m.In.Sum(data)); err != nil {
			return false, err
		}
		err = r.handle(op, avail[:pdu.HeaderLen], data)
		m.In.Consume(whole)
		return true, err
	case fits:
		return false, nil
	}
	// A text larger than the batch buffer is collected in a buffer of its own.
	copy(r.header[:], avail)
	r.task, r.other = nil, make([]byte, n)
	m.In.Land(r.other, start)
	return true, nil
}

// startData checks a Data-In header against its command and lands its payload
// in the command's buffer.
func (r *receiver) startData(avail []byte, start, n int) error {
	m, d := r.m, &r.din
	if err := d.Decode(avail); err != nil {
		return violation("%v", err)
	}
	m.window(d.Window, d.HasStatus)
	k, err := m.find(d.ITT)
	if err != nil {
		return err
	}
	if k == nil {
		m.In.Skip(start, n+m.p.Trailer(n))
		return nil
	}
	if err := checkDataIn(d, k, m.of(k)); err != nil {
		return err
	}
	r.task = k
	// Ahead of the next: its header, no more.
	m.In.LandIn(k.Cmd, d.Offset, start, n, m.p.Trailer(n)+m.p.DataStart(0))
	return nil
}

// checkDataIn refuses data that does not fit its command: DataPDUInOrder is
// always Yes, so each PDU continues the one before. MaxBurstLength is
// not checked: tgt ignores it, and nothing here depends on it.
func checkDataIn(d *pdu.DataIn, k *wire.Task, x *extra) error {
	c := k.Cmd
	n := uint32(d.DataLen)
	switch {
	case !k.Reads():
		return violation("Data-In for a %v", c.Op)
	case d.DataSN != x.dataSN:
		return violation("Data-In with DataSN %d, expected %d", d.DataSN, x.dataSN)
	case n > 0 && d.Offset != c.Moved:
		return violation("Data-In at offset %d, expected %d", d.Offset, c.Moved)
	case n > c.Len-c.Moved:
		return violation("Data-In of %d bytes at offset %d for a read of %d", n, c.Moved, c.Len)
	}
	if n == 0 {
		d.Offset = c.Moved
		if x.empty++; x.empty > maxEmptyDataIn {
			return violation("%d Data-In without data (A target that takes MaxBurstLength for 0 does this)", x.empty)
		}
	} else {
		x.empty = 0
	}
	return nil
}

// Landed implements wire.Parser: it finishes the PDU whose payload has landed.
func (m *machine) Landed() error {
	r := &m.rx
	k := r.task
	if k == nil {
		data := r.other
		r.other = nil
		op, _ := pdu.Op(r.header[:])
		return r.handle(op, r.header[:], data)
	}
	d := &r.din
	m.of(k).dataSN++
	k.Cmd.Moved += uint32(d.DataLen)
	if !d.HasStatus {
		return nil
	}
	return r.status(k, 0, d.Status, d.Residual, nil)
}
