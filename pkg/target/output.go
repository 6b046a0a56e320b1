package target

import "github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"

// head adds a PDU's header and returns it for Put; the caller then calls seal,
// and adds the data segment.
func (c *conn) head() []byte { return c.Out.Clear(pdu.HeaderLen) }

// seal adds the header digest of the header just put.
func (c *conn) seal() {
	if c.layout.HeaderDigest {
		c.Out.Room(pdu.DigestLen)
		c.layout.PutHeaderDigest(c.Out.Tail(pdu.HeaderLen + pdu.DigestLen))
	}
}

// data adds a copied data segment with padding and digest.
func (c *conn) data(d []byte) {
	copy(c.Out.Room(len(d)), d)
	c.trail(len(d), d)
}

// refer adds a data segment by reference, with padding and digest.
func (c *conn) refer(d []byte) {
	c.Out.Refer(d)
	c.trail(len(d), d)
}

// trail adds the padding and digest of a data segment.
func (c *conn) trail(n int, d []byte) {
	if t := c.layout.Trailer(n); t > 0 {
		c.layout.PutTrailer(c.Out.Room(t), n, c.crc(d))
	}
}
