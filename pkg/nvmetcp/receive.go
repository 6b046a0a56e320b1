package nvmetcp

import (
	"errors"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/wire"
)

// Header implements wire.Parser.
func (q *queue) Header(avail []byte) (more bool, err error) {
	h, need, err := q.recv.Open(avail)
	if err != nil {
		return false, broken(err)
	}
	if need > 0 {
		return false, nil
	}
	if h.Type == pdu.TypeC2HData {
		return true, q.data(avail, h)
	}
	if all, _ := q.In.Whole(h.Size); !all { // small ones always fit
		return false, nil
	}
	switch h.Type {
	case pdu.TypeCapsuleResp:
		var c nvme.Completion
		if err = c.Decode(pdu.Entry(avail)); err == nil {
			err = q.response(&c)
		}
	case pdu.TypeR2T:
		err = q.r2t(avail)
	case pdu.TypeC2HTerm:
		err = terminated(avail[:h.Size])
	default:
		err = violation("%v from the controller", h.Type)
	}
	q.In.Consume(h.Size)
	return true, err
}

// find is the live task with the CID. An answer to anything else means that the
// two ends no longer agree.
func (q *queue) find(t pdu.Type, cid uint16) (*wire.Task, error) {
	if k, ok := q.Tasks.Find(uint32(cid)); ok && k != nil {
		return k, nil
	}
	return nil, violation("%v for command %#x, which is not outstanding", t, cid)
}

// data checks the header of a C2HData against its command and lands its payload
// in the command's buffer. Data comes in order, and none after the last (3.3.2.2).
func (q *queue) data(avail []byte, h pdu.Header) error {
	d := &q.head
	if err := d.DecodeC2H(avail, h); err != nil {
		return broken(err)
	}
	k, err := q.find(h.Type, d.CID)
	if err != nil {
		return err
	}
	c := k.Cmd
	switch {
	case !k.Reads():
		return violation("C2HData for a %v", c.Op)
	case q.of(k).last:
		return violation("C2HData after the last of its command")
	case d.Offset != c.Moved:
		return violation("C2HData at offset %d, expected %d", d.Offset, c.Moved)
	case d.Len > c.Len-c.Moved:
		return violation("C2HData of %d bytes at offset %d for a read of %d", d.Len, c.Moved, c.Len)
	}
	q.landing = k
	// Ahead of the next: its header, no more.
	q.In.LandIn(c, d.Offset, h.DataOff, h.Data, q.recv.Trailer(h.Data)+q.recv.DataStart(pdu.HeaderLen))
	return nil
}

// Trailer implements wire.Parser.
func (q *queue) Trailer(n int) int { return q.recv.Trailer(n) }

// Check implements wire.Parser. The connection survives a wrong digest, its
// command fails (3.3.1.1).
func (q *queue) Check(trailer []byte, n int, sum uint32) error {
	err := q.recv.CheckTrailer(trailer, n, sum)
	if errors.Is(err, pdu.ErrDataDigest) {
		q.of(q.landing).bad = true
		return nil
	}
	return err
}

// Landed implements wire.Parser: a C2HData is whole.
func (q *queue) Landed() error {
	k, d := q.landing, &q.head
	q.landing = nil
	k.Cmd.Moved += d.Len
	q.of(k).last = d.Last
	if !d.Success {
		return nil
	}
	return q.end(k, &nvme.Completion{CID: d.CID, SQHead: nvme.SQHeadDisabled})
}

// response ends a command (3.6.2.7).
func (q *queue) response(c *nvme.Completion) error {
	k, err := q.find(pdu.TypeCapsuleResp, c.CID)
	if err != nil {
		return err
	}
	return q.end(k, c)
}

// end ends k with what the controller says of it. Data with a wrong digest is as
// if it had not come: the controller's own word for that is a transient
// transport error (B-05).
func (q *queue) end(k *wire.Task, c *nvme.Completion) error {
	x := q.of(k)
	if c.Status.OK() && x.bad {
		c.Status = nvme.TransientTransport
	}
	if x.req != nil {
		x.req.answer = *c
		q.Answer(k, blk.Verdict{})
		return nil
	}
	if c.Status.OK() && (k.Cmd.Moved != k.Expected() || k.Unsent() > 0) {
		return violation("a %v of %d bytes succeeded after %d of them", k.Cmd.Op, k.Expected(), k.Cmd.Moved)
	}
	q.Answer(k, q.c.id.Classify(k.Cmd.Op, c.Status))
	return nil
}

// r2t is a request for data (3.6.2.10): each continues the one before (B-02).
func (q *queue) r2t(b []byte) error {
	var p pdu.R2T
	if err := p.Decode(b); err != nil {
		return broken(err)
	}
	k, err := q.find(pdu.TypeR2T, p.CID)
	if err != nil {
		return err
	}
	left := uint32(k.Size) - k.Cmd.Moved
	switch {
	case k.Size == 0:
		return violation("R2T for a %v", k.Cmd.Op)
	case p.Offset != k.Cmd.Moved || p.Len > left:
		return violation("R2T for %d bytes at %d; %d of %d bytes are asked for", p.Len, p.Offset, k.Cmd.Moved, k.Size)
	case k.Unsent() >= openR2T:
		return violation("R2T while %d are open", openR2T)
	}
	q.Ask(k, uint32(p.Tag), p.Offset, p.Len)
	return nil
}
