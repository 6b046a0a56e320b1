package nvmetcp

import (
	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/wire"
)

// Urgent implements wire.Codec: nothing goes before commands.
func (q *queue) Urgent() {}

// Waiting implements wire.Codec.
func (q *queue) Waiting() bool { return false }

// Command implements wire.Codec: a command capsule (3.6.2.6). Its data is in it
// if it fits as a whole, else the controller asks for it (B-06). There is always
// room at the controller: there are fewer tags than entries (B-07).
func (q *queue) Command(k *wire.Task, c *blk.Command) bool {
	var e nvme.Command
	if x := q.of(k); x.req != nil {
		e, k.Out, k.Size = x.req.entry, x.req.Out, len(x.req.Out)
	} else {
		x.ns.form.Load().encode(&e, k, x)
	}
	e.CID = uint16(c.Tag)
	in, fits := 0, q.capsule
	if e.SGL.Kind == nvme.SGLInCapsule { // Connect, on any queue
		fits = pdu.AdminCapsuleData
	}
	switch {
	case k.Size > 0 && k.Size <= fits:
		in = k.Size
		e.SGL, c.Moved = nvme.InCapsule(uint32(in)), uint32(in)
	case k.Size > 0 || k.Reads():
		e.SGL = nvme.ByTransport(k.Expected())
	}
	b := q.Out.Next(pdu.MaxHeader)
	e.Put(pdu.CommandSpace(b))
	q.Out.Put(q.send.PutCapsuleCmd(b, in))
	q.payload(k, 0, in)
	return true
}

// Data implements wire.Codec: an H2CData (3.6.2.8).
func (q *queue) Data(j *wire.Job, n int) {
	h := pdu.Data{CID: uint16(j.Cmd.Tag), Tag: uint16(j.Tag), Offset: j.Off, Len: uint32(n), Last: n == int(j.Left)}
	q.Out.Put(h.PutH2C(q.Out.Next(pdu.MaxHeader), q.send))
	q.payload(j.Task, int(j.Off), n)
}

// payload adds n bytes of k's payload, and their digest.
func (q *queue) payload(k *wire.Task, off, n int) {
	if n > 0 {
		sum := q.Out.Payload(k, off, n)
		q.Out.Put(q.send.PutTrailer(q.Out.Next(pdu.DigestLen), n, sum))
	}
}
