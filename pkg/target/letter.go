package target

import (
	"bytes"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// letter is an answer with all it needs, apart from its task.
type letter struct {
	sess   *session
	conn   *conn
	t      task // its tags, directions and lengths
	status byte
	sense  []byte
	data   []byte
	actual uint64
}

// enclose ends a task and makes a letter of its answer.
func (m *Machine) enclose(t *task, status byte, data []byte, actual uint64) {
	m.mail(t, &letter{status: status, data: bytes.Clone(data), actual: actual})
}

func (m *Machine) encloseStatus(t *task, status byte, sense []byte) {
	m.mail(t, &letter{status: status, sense: bytes.Clone(sense), actual: uint64(m.wants(t))})
}

func (m *Machine) mail(t *task, a *letter) {
	rule := t.Spoil
	a.sess, a.conn = t.sess, t.conn
	a.t = task{lun: t.lun, itt: t.itt, edtl: t.edtl, read: t.read, r2tSN: t.r2tSN}
	rule.Twist().Data.In(a.data)
	m.end(t)
	m.free(t)
	m.Mail(rule, a)
}

// Post implements serve.Letter.
func (a *letter) Post(w *serve.Twist) {
	c := a.conn
	if w.Elsewhere {
		c = a.conn.m.sibling(a.sess)
	}
	if c == nil || c.IsGone() || c.Closing() || c.sess == nil {
		return
	}
	a.put(c, w)
	if w.Twice {
		a.put(c, w)
	}
}

// sibling is the connection of the newest other session of the same initiator.
func (m *Machine) sibling(s *session) (c *conn) {
	newest := 0
	for _, o := range m.sessions {
		if o != s && o.conn != nil && !o.discovery && o.key.initiator == s.key.initiator && int(o.tsih) > newest {
			c, newest = o.conn, int(o.tsih)
		}
	}
	return c
}

// put writes the answer, and then spoils what was written.
func (a *letter) put(c *conn, w *serve.Twist) {
	at := c.Out.Mark()
	if a.status == scsi.StatusGood && a.t.read {
		c.dataIn(&a.t, len(a.data), a.actual, func(off, k int) { c.data(a.data[off : off+k]) })
	} else {
		c.statusResponse(&a.t, a.status, a.sense, a.actual)
	}
	wrote := c.Out.Since(at)
	w.Header.In(wrote[:pdu.HeaderLen])
	w.Wire.In(wrote[c.layout.DataStart(0):])
}
