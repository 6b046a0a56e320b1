package target

import (
	"bytes"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// Twist is what happens to the answers of commands that were executed. The
// zero value does nothing.
type Twist struct {
	// Delay sends an answer so much later. The command itself is over: no abort
	// and no reset ends its answer, which then comes for a tag nobody waits for,
	// or worse, for the next command of that tag.
	Delay time.Duration
	// Keep waits for Letters.Release instead.
	Keep bool
	// Elsewhere sends it on a connection of another session, the newest of the
	// same initiator's; on none if there is none.
	Elsewhere bool
	// Twice sends it two times.
	Twice bool
	// Data flips bits of the data of a read before its digest is made, Wire
	// after, Header those of the first header, after.
	Data, Wire, Header Flip
}

// Flip inverts the bits of Mask in the byte at At, from the beginning; nothing
// when Mask is 0, or the byte is not there.
type Flip struct {
	At   int
	Mask byte
}

func (f Flip) in(b []byte) {
	if f.At >= 0 && f.At < len(b) {
		b[f.At] ^= f.Mask
	}
}

// Letters are answers that wait to be sent.
type Letters struct {
	m    *Machine
	r    *rule
	list []*letter
}

// letter is an answer with all it needs, apart from its task.
type letter struct {
	of     *rule
	sess   *session
	conn   *Conn
	t      task // its tags, directions and lengths
	status byte
	sense  []byte
	data   []byte
	actual uint64
	due    time.Time
}

// SpoilAnswers twists the answers of the commands of match.
func (m *Machine) SpoilAnswers(match Match, w Twist) (*Letters, error) {
	r := &rule{Match: match, action: actSpoil, twist: w}
	r.kept = &Letters{m: m, r: r}
	return r.kept, m.add(r)
}

// Len is how many answers are kept.
func (l *Letters) Len() int { return len(l.list) }

// Release ends the fault and sends what it kept, in order.
func (l *Letters) Release() {
	l.m.drop(l.r)
	list := l.list
	l.list = nil
	for _, a := range list {
		l.m.post(a)
	}
}

// enclose ends a task and makes a letter of its answer.
func (m *Machine) enclose(t *task, status byte, data []byte, actual uint64) {
	m.mail(t, &letter{status: status, data: bytes.Clone(data), actual: actual})
}

func (m *Machine) encloseStatus(t *task, status byte, sense []byte) {
	m.mail(t, &letter{status: status, sense: bytes.Clone(sense), actual: uint64(m.wants(t))})
}

func (m *Machine) mail(t *task, a *letter) {
	a.of, a.sess, a.conn = t.spoil, t.sess, t.conn
	a.t = task{lun: t.lun, itt: t.itt, edtl: t.edtl, read: t.read, r2tSN: t.r2tSN}
	w := &a.of.twist
	w.Data.in(a.data)
	m.end(t)
	m.free(t)
	switch {
	case w.Keep && len(a.of.kept.list) < maxLate:
		a.of.kept.list = append(a.of.kept.list, a)
	case w.Delay > 0 && len(m.letters) < maxLate:
		a.due = m.now.Add(w.Delay)
		m.letters = append(m.letters, a)
	default:
		m.post(a)
	}
}

// post sends a letter, if there is still whom to send it to.
func (m *Machine) post(a *letter) {
	c := a.conn
	if a.of.twist.Elsewhere {
		c = m.sibling(a.sess)
	}
	if c == nil || c.gone || c.closing || c.sess == nil {
		return
	}
	a.put(c)
	if a.of.twist.Twice {
		a.put(c)
	}
}

// sibling is the connection of the newest other session of the same initiator.
func (m *Machine) sibling(s *session) (c *Conn) {
	newest := 0
	for _, o := range m.sessions {
		if o != s && o.conn != nil && !o.discovery && o.key.initiator == s.key.initiator && int(o.tsih) > newest {
			c, newest = o.conn, int(o.tsih)
		}
	}
	return c
}

// put writes the answer, and then spoils what was written.
func (a *letter) put(c *Conn) {
	at, _ := c.out.mark()
	if a.status == scsi.StatusGood && a.t.read {
		c.dataIn(&a.t, len(a.data), a.actual, func(off, k int) { c.out.data(c.layout, a.data[off:off+k]) })
	} else {
		c.statusResponse(&a.t, a.status, a.sense, a.actual)
	}
	wrote := c.out.buf[at:]
	a.of.twist.Header.in(wrote[:pdu.HeaderLen])
	a.of.twist.Wire.in(wrote[c.layout.DataStart(0):])
}

// deliver sends the letters that are due.
func (m *Machine) deliver() {
	for i := 0; i < len(m.letters); {
		a := m.letters[i]
		if a.due.After(m.now) {
			i++
			continue
		}
		m.letters = append(m.letters[:i], m.letters[i+1:]...)
		m.post(a)
	}
}
