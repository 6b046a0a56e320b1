package serve

import "time"

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

// In flips the bits in b.
func (f Flip) In(b []byte) {
	if f.At >= 0 && f.At < len(b) {
		b[f.At] ^= f.Mask
	}
}

// Letter is an answer with all it needs, apart from its task.
type Letter interface {
	// Post writes it, twisted, if there is still whom to send it to.
	Post(w *Twist)
}

// envelope is a letter under way.
type envelope struct {
	Letter
	of  *Rule
	due time.Time
}

func (e *envelope) post() { e.Post(&e.of.twist) }

// Letters are answers that wait to be sent.
type Letters struct {
	m    *Core
	r    *Rule
	list []*envelope
}

// Twist is what the fault does to answers.
func (r *Rule) Twist() *Twist { return &r.twist }

// SpoilAnswers twists the answers of the commands of match.
func (m *Core) SpoilAnswers(match Match, w Twist) (*Letters, error) {
	r := &Rule{Match: match, action: actSpoil, twist: w}
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
	for _, e := range list {
		e.post()
	}
}

// Mail sends a letter as the fault r says.
func (m *Core) Mail(r *Rule, l Letter) {
	e := &envelope{Letter: l, of: r}
	switch w := &r.twist; {
	case w.Keep && len(r.kept.list) < maxLate:
		r.kept.list = append(r.kept.list, e)
	case w.Delay > 0 && len(m.letters) < maxLate:
		e.due = m.now.Add(w.Delay)
		m.letters = append(m.letters, e)
		m.Rouse()
	default:
		e.post()
	}
}
