package sim

import (
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// spy watches a link for I1: once the initiator knows, or must find out before
// it does anything, that another volume is behind the portal, no command that
// moves blocks may be gathered for it any more.
type spy struct {
	l       *link
	armed   bool // no such command from here on
	heard   bool // the evidence has been received, and is being handled
	rest    int  // bytes of a batch gathered before, still to be sent
	out, in cutter
}

// receives: the reader is back for more, so what it has received is handled.
func (s *spy) receives() {
	if s.heard {
		s.heard = false
		s.armed = s.l.path.foreign
	}
}

func (s *spy) received(b []byte) {
	s.in.feed(b, func(h, data []byte) {
		if op, _ := pdu.Op(h); op != pdu.OpSCSIResponse {
			return
		}
		sense, ok := scsi.ParseSense(pdu.Sense(data))
		switch {
		case !ok || sense.Key != scsi.KeyUnitAttention:
		case sense.ASC == 0x29 && sense.ASCQ == 0x01:
			s.l.array.powered[s.l.path.index] = false
			s.l.array.told.Add(1)
			s.l.array.tell("portal %s: POWER ON OCCURRED was received", s.l.path.address)
		case sense.ASC == 0x3F && s.l.path.foreign:
			s.heard = true
			s.l.array.tell("portal %s: the evidence was received, of task %#x", s.l.path.address, pdu.ITT(h))
		}
	})
}

// sends looks at the first bytes of a batch of total. late: it was gathered
// after the evidence.
func (s *spy) sends(b []byte, total int, late bool) {
	old := s.rest
	if !late {
		old = total
	}
	s.rest = max(old-len(b), 0)
	if s.l.conn == nil {
		return
	}
	at := 0
	s.out.feed(b, func(h, _ []byte) {
		if op, _ := pdu.Op(h); op != pdu.OpSCSICommand {
			return
		}
		var p pdu.SCSICommand
		if p.Decode(h) != nil || !movesBlocks(p.CDB[:]) {
			return
		}
		if s.l.path.foreign {
			s.l.array.tell("portal %s: opcode %#02x of task %#x goes to another volume, evidence %v", s.l.path.address, p.CDB[0], p.ITT, s.armed)
		}
		if s.armed && at >= old {
			s.l.array.broken("portal %s got opcode %#02x for another volume (I1)", s.l.path.address, p.CDB[0])
		}
	}, func(n int) { at += n })
}

func movesBlocks(cdb []byte) bool {
	cmd, _, ok := scsi.DecodeCDB(cdb)
	if !ok {
		return false
	}
	switch cmd.Op {
	case scsi.OpRead10, scsi.OpRead16, scsi.OpWrite10, scsi.OpWrite16, scsi.OpUnmap, scsi.OpWriteSame16,
		scsi.OpSyncCache10, scsi.OpSyncCache16:
		return true
	}
	return false
}

// cutter finds the PDUs in a stream without digests.
type cutter struct {
	head []byte // of the PDU that comes, header and up to maxSense of data
	left int    // bytes of it to come, when the header is whole
}

const maxSense = 64

// feed calls whole for each PDU that is complete; step, if given, for the bytes
// consumed before the next is looked at.
func (c *cutter) feed(b []byte, whole func(h, data []byte), step ...func(n int)) {
	for len(b) > 0 {
		var n int
		if len(c.head) < pdu.HeaderLen {
			n = min(pdu.HeaderLen-len(c.head), len(b))
			c.head = append(c.head, b[:n]...)
			if len(c.head) == pdu.HeaderLen {
				d := pdu.DataLen(c.head)
				c.left = pdu.AHSLen(c.head) + d + pdu.Pad(d)
			}
		} else {
			n = min(c.left, len(b))
			c.left -= n
			if room := pdu.HeaderLen + maxSense - len(c.head); room > 0 {
				c.head = append(c.head, b[:min(n, room)]...)
			}
		}
		if len(c.head) >= pdu.HeaderLen && c.left == 0 {
			h := c.head
			whole(h[:pdu.HeaderLen], h[pdu.HeaderLen:min(len(h), pdu.HeaderLen+pdu.DataLen(h))])
			c.head = c.head[:0]
		}
		for _, s := range step {
			s(n)
		}
		b = b[n:]
	}
}
