package device

import (
	"slices"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
)

// gate is one bound on logins: so many in a row, so many per second after, so
// many at a time. Pure: now is given.
type gate struct {
	every    time.Duration // one login per
	burst    int           // before every counts
	most     int           // at a time
	lease    time.Duration // one that takes longer does not count among most
	next     time.Time     // when the bucket would be full again
	inFlight []time.Time   // when each lease ends, oldest first

	// at is when it opens, as found by the turnstile's look number look.
	look uint64
	at   time.Time
}

// opens is when the gate lets the next one through; not after now: it is open.
func (g *gate) opens(now time.Time) time.Time {
	for len(g.inFlight) > 0 && !g.inFlight[0].After(now) {
		g.inFlight = g.inFlight[1:]
	}
	at := g.next.Add(-time.Duration(g.burst-1) * g.every)
	if n := len(g.inFlight) - g.most; n >= 0 {
		if free := g.inFlight[n]; free.After(at) {
			at = free
		}
	}
	return at
}

// pass lets one through at now.
func (g *gate) pass(now time.Time) {
	if g.next.Before(now) {
		g.next = now
	}
	g.next = g.next.Add(g.every)
	g.inFlight = append(g.inFlight, now.Add(g.lease))
}

// leave takes note that one that passed at the given time is done.
func (g *gate) leave(passed time.Time) {
	if i := slices.Index(g.inFlight, passed.Add(g.lease)); i >= 0 {
		g.inFlight = slices.Delete(g.inFlight, i, i+1)
	}
}

// idle reports that the gate remembers nothing that counts.
func (g *gate) idle(now time.Time) bool { return !g.next.After(now) && len(g.inFlight) == 0 }

// turn is one login that waits, or is under way.
type turn struct {
	gate    *gate
	urgency func() datapath.Urgency
	came    time.Time
	passed  time.Time
	granted chan struct{} // closed when it passes
}

// turnstile decides who logs in next: a login passes the gate of its portal and
// that of the process. Among those that may, the most urgent goes first, and
// the first of equals; after maxTurnWait everybody is as urgent as can be, so
// that nobody waits for ever. Pure: now is given.
type turnstile struct {
	all     gate
	portals map[string]*gate
	waiting []*turn // in order of arrival
	look    uint64  // looks along the line so far
}

func newTurnstile() turnstile {
	return turnstile{portals: map[string]*gate{},
		all: gate{every: time.Second / processLogins, burst: processBurst, most: processInFlight, lease: loginLease}}
}

func (t *turnstile) gate(portal string) *gate {
	g := t.portals[portal]
	if g == nil {
		g = &gate{every: time.Second / portalLogins, burst: portalBurst, most: portalInFlight, lease: loginLease}
		t.portals[portal] = g
	}
	return g
}

// arrive puts a login at portal at the end of the line.
func (t *turnstile) arrive(portal string, w *turn) {
	w.gate = t.gate(portal)
	t.waiting = append(t.waiting, w)
}

// next takes the one whose turn it is now out of the line. nil: nobody's before
// wake, or, when that is zero, before something changes.
func (t *turnstile) next(now time.Time) (w *turn, wake time.Time) {
	if len(t.waiting) == 0 {
		t.forget(now)
		return nil, wake
	}
	if at := t.all.opens(now); at.After(now) {
		return nil, at
	}
	t.look++ // along a line of thousands: each gate is asked once
	best, rank := -1, datapath.Urgency(0)
	for i, w := range t.waiting {
		g := w.gate
		if g.look != t.look {
			g.look, g.at = t.look, g.opens(now)
		}
		if g.at.After(now) {
			if wake.IsZero() || g.at.Before(wake) {
				wake = g.at
			}
			continue
		}
		u := datapath.Fencing
		if now.Sub(w.came) < maxTurnWait {
			u = w.urgency()
		}
		if best < 0 || u < rank {
			best, rank = i, u
		}
	}
	if best < 0 {
		return nil, wake
	}
	w = t.waiting[best]
	t.waiting = slices.Delete(t.waiting, best, best+1)
	w.passed = now
	t.all.pass(now)
	w.gate.pass(now)
	return w, now
}

// leave ends a turn: a login that is done, or one that waits no longer.
func (t *turnstile) leave(w *turn) {
	if i := slices.Index(t.waiting, w); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
		return
	}
	t.all.leave(w.passed)
	w.gate.leave(w.passed)
}

// forget drops the gates that remember nothing, while nobody waits.
func (t *turnstile) forget(now time.Time) {
	if len(t.portals) <= maxGates {
		return
	}
	for name, g := range t.portals {
		if g.opens(now); g.idle(now) {
			delete(t.portals, name)
		}
	}
}
