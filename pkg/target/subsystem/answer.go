package subsystem

import (
	"bytes"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// answer ends a command with a status.
func (t *task) answer(st nvme.Status) { t.complete(st, 0) }

// complete ends a command with a status and a result.
func (t *task) complete(st nvme.Status, result uint64) {
	if t.silent() {
		return
	}
	if !st.OK() {
		t.logError(st)
	}
	if t.Spoil != nil {
		t.mail(&letter{conn: t.conn, c: nvme.Completion{CID: t.cmd.CID, Status: st, Result: result}})
		return
	}
	c, v := t.conn, nvme.Completion{Result: result, CID: t.cmd.CID, Status: st}
	t.over()
	c.response(v)
	t.Free()
}

// over takes a command that is answered out of its queue.
func (t *task) over() {
	t.m.stats.Answered++
	t.unlist()
}

// silent ends commands nobody gets an answer of: late ones, and those whose
// answer a fault drops.
func (t *task) silent() bool {
	switch {
	case t.conn == nil:
		t.m.NotLate()
	case t.Mute:
	default:
		return false
	}
	m, x := t.m, t.q.ctrl
	t.over()
	t.Free()
	if x != nil {
		m.forget(x)
	}
	return true
}

// response sends a response capsule.
func (c *conn) response(v nvme.Completion) {
	if v.SQHead = c.q.head; c.q.noFlow {
		v.SQHead = nvme.SQHeadDisabled
	}
	b := c.Out.Clear(pdu.HeaderLen + pdu.DigestLen)
	v.Put(pdu.ResponseSpace(b))
	c.Out.Shorten(len(b) - c.out.PutCapsuleResp(b))
	c.Touch()
}

// reply ends a command with data, cut to what the host takes.
func (t *task) reply(data []byte) {
	data = data[:min(len(data), int(t.cmd.SGL.Len))]
	if t.silent() {
		return
	}
	if t.Spoil != nil {
		t.mail(&letter{conn: t.conn, c: nvme.Completion{CID: t.cmd.CID}, data: bytes.Clone(data)})
		return
	}
	c, cid := t.conn, t.cmd.CID
	t.over()
	c.send(cid, len(data), func(off, n int) { c.copied(data[off : off+n]) })
	t.Free()
}

// send sends n bytes as C2HData, and the completion; segment adds the data of
// one. Where the host does not need SQHD the last one's SUCCESS stands for the
// completion (TCP 3.3.2.2).
func (c *conn) send(cid uint16, n int, segment func(off, n int)) {
	success := c.q.noFlow && !c.m.cfg.NoSuccess && n > 0
	for off := 0; off < n; {
		k := min(n-off, int(c.m.cfg.MaxC2HData))
		last := off+k == n
		p := pdu.Data{CID: cid, Offset: uint32(off), Len: uint32(k), Last: last, Success: last && success}
		b := c.Out.Room(c.out.DataStart(pdu.HeaderLen))
		p.PutC2H(b, c.out)
		segment(off, k)
		off += k
	}
	if success {
		c.Touch()
		return
	}
	c.response(nvme.Completion{CID: cid})
}

// copied adds data and its digest.
func (c *conn) copied(d []byte) {
	copy(c.Out.Room(len(d)), d)
	c.trail(d)
}

// referred adds data by reference, and its digest.
func (c *conn) referred(d []byte) {
	c.Out.Refer(d)
	c.trail(d)
}

// trail adds the digest of d.
func (c *conn) trail(d []byte) {
	if n := c.out.Trailer(len(d)); n > 0 {
		c.out.PutTrailer(c.Out.Room(n), len(d), pdu.CRC(0, d))
	}
}

// letter is an answer with all it needs, apart from its task.
type letter struct {
	conn *conn
	c    nvme.Completion
	data []byte
}

// mail ends a command and has a fault deliver its answer.
func (t *task) mail(a *letter) {
	rule, m := t.Spoil, t.m
	rule.Twist().Data.In(a.data)
	t.over()
	t.Free()
	m.Mail(rule, a)
}

// Post implements serve.Letter.
func (a *letter) Post(w *serve.Twist) {
	c := a.conn
	if w.Elsewhere {
		c = c.m.sibling(c)
	}
	if c == nil || c.IsGone() || c.Closing() {
		return
	}
	a.put(c, w)
	if w.Twice {
		a.put(c, w)
	}
}

// sibling is the newest connection of a queue of the same number, of another
// controller of the same host's.
func (m *Machine) sibling(c *conn) (out *conn) {
	x := c.q.ctrl
	if x == nil {
		return nil
	}
	newest := -1
	for _, o := range m.controllers {
		if q := o.queues[c.q.id]; o != x && o.host == x.host && q != nil && q.conn != nil && int(o.id) > newest {
			out, newest = q.conn, int(o.id)
		}
	}
	return out
}

// put writes the answer, and then spoils what was written.
func (a *letter) put(c *conn, w *serve.Twist) {
	at := c.Out.Mark()
	if len(a.data) > 0 {
		c.send(a.c.CID, len(a.data), func(off, n int) { c.copied(a.data[off : off+n]) })
	} else {
		c.response(a.c)
	}
	wrote := c.Out.Since(at)
	w.Header.In(wrote[:pdu.HeaderLen])
	w.Wire.In(wrote[min(len(wrote), c.out.DataStart(pdu.HeaderLen)):])
}
