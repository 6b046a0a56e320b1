package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/csi-mpath/csi-mpath/pkg/api/v1alpha1"
)

// Subject is a volume on a node.
type Subject struct{ Node, Volume string }

// Event is one that people are to see.
type Event struct {
	Node   string
	Volume string // empty: it is about the node
	// Reason is PathDown, PathUp, MultipathDegraded, AllPathsLost, or that of a note.
	Reason  string
	Warning bool
	Note    string
}

// Narrator makes Events of statuses. A volume's are about how much of it is left; a
// node's are about portals, so that one that many volumes share makes one Event and
// not one for each. Not for several goroutines.
type Narrator struct {
	volumes map[Subject]*account
	portals map[portal]*account
	notes   []Event // that wait for their turn, in their order
	tokens  float64 // Events that may be told now
	filled  time.Time
}

// account is a subject's stream, and what there is to say about it.
type account struct {
	stream
	paths  []v1alpha1.PathStatus // of a volume
	down   int                   // volumes that lost a portal
	all    int                   // volumes that use it
	silent bool                  // what was told last was told as the portal's
	noted  map[string]time.Time  // when a note of a reason was told last
}

// portal is one as a node sees it.
type portal struct{ node, address string }

// NewNarrator has seen nothing.
func NewNarrator() *Narrator {
	return &Narrator{volumes: map[Subject]*account{}, portals: map[portal]*account{}, tokens: eventBurst}
}

// Observe notes a status. The first one of a volume that changed long ago is no
// news: another controller told of it.
func (n *Narrator) Observe(now time.Time, of Subject, status v1alpha1.MultipathVolumeStatus) {
	if status.State == "" {
		return // nothing is written yet
	}
	a := n.volumes[of]
	first := a == nil
	if first {
		a = &account{noted: map[string]time.Time{}}
		n.volumes[of] = a
	}
	n.take(now, of, a, status.Notes)
	a.set(now, levelOf(status.State))
	before := a.paths
	a.paths = slices.Clone(status.Paths)
	n.count(of.Node, before, -1)
	n.count(of.Node, a.paths, 1)
	n.judge(now, of.Node, before)
	n.judge(now, of.Node, a.paths)
	if first && now.Sub(changedAt(&status)) > newsFor {
		a.accept()
		for _, p := range a.paths {
			n.portals[portal{of.Node, p.Portal}].accept()
		}
	}
}

// take makes Events of notes that are news, and not told of already.
func (n *Narrator) take(now time.Time, of Subject, a *account, notes []v1alpha1.Note) {
	for _, note := range notes {
		told, ever := a.noted[note.Reason]
		if now.Sub(note.Time.Time) > newsFor || ever && note.Time.Sub(told) < noteEvery || len(n.notes) >= maxPending {
			continue
		}
		a.noted[note.Reason] = note.Time.Time
		n.notes = append(n.notes, Event{Node: of.Node, Volume: of.Volume, Reason: note.Reason, Warning: true, Note: clip(note.Message, maxNote)})
	}
}

// Forget drops a volume.
func (n *Narrator) Forget(now time.Time, of Subject) {
	a := n.volumes[of]
	if a == nil {
		return
	}
	delete(n.volumes, of)
	n.count(of.Node, a.paths, -1)
	n.judge(now, of.Node, a.paths)
}

func levelOf(s v1alpha1.State) int {
	switch s {
	case v1alpha1.Unreachable:
		return 2
	case v1alpha1.Degraded:
		return 1
	}
	return 0
}

// changedAt is when a volume became what it is.
func changedAt(s *v1alpha1.MultipathVolumeStatus) (at time.Time) {
	for _, kind := range []string{v1alpha1.Accessible, v1alpha1.Redundant} {
		if c := meta.FindStatusCondition(s.Conditions, kind); c != nil && c.LastTransitionTime.After(at) {
			at = c.LastTransitionTime.Time
		}
	}
	return at
}

// count adds a volume's paths to those of its portals, or takes them off.
func (n *Narrator) count(node string, paths []v1alpha1.PathStatus, by int) {
	for _, p := range paths {
		key := portal{node, p.Portal}
		a := n.portals[key]
		if a == nil {
			a = &account{}
			n.portals[key] = a
		}
		a.all += by
		if !p.Up {
			a.down += by
		}
	}
}

// judge sets the levels of portals whose volumes were counted: 1 means that some
// have lost it, 2 that several have.
func (n *Narrator) judge(now time.Time, node string, paths []v1alpha1.PathStatus) {
	for _, p := range paths {
		a := n.portals[portal{node, p.Portal}]
		switch {
		case a == nil:
		case a.all == 0:
			delete(n.portals, portal{node, p.Portal})
		case a.down >= severalVolumes:
			a.set(now, 2)
		default:
			a.set(now, min(a.down, 1))
		}
	}
}

// Due are the Events of now, and when to ask again; never if nothing is to be told.
// Portals come first, then volumes, the worst first. What there are too many of comes
// later, if it still is so.
func (n *Narrator) Due(now time.Time) (events []Event, again time.Time, ever bool) {
	n.tokens = min(eventBurst, n.tokens+float64(now.Sub(n.filled))/float64(eventEvery))
	n.filled = now
	for len(n.notes) > 0 && n.tokens >= 1 {
		events, n.notes = append(events, n.notes[0]), n.notes[1:]
		n.tokens--
	}
	if len(n.notes) > 0 {
		again, ever = now.Add(eventEvery), true
	}
	ready := func(a *account) bool {
		at, pending := a.due()
		if pending && !at.After(now) && n.tokens < 1 {
			at = now.Add(eventEvery)
		}
		if pending && at.After(now) && (!ever || at.Before(again)) {
			again, ever = at, true
		}
		return pending && !at.After(now)
	}
	for _, key := range worst(n.portals, func(p portal) string { return p.node + " " + p.address }) {
		if a := n.portals[key]; ready(a) {
			events = append(events, portalEvent(key, a))
			n.tokens--
			a.tell(now)
		}
	}
	for _, of := range worst(n.volumes, func(s Subject) string { return s.Node + " " + s.Volume }) {
		a := n.volumes[of]
		if at, _ := a.due(); !at.After(now) && n.covered(of.Node, a) {
			a.accept()
			a.silent = true
		}
		if ready(a) {
			events = append(events, volumeEvent(of, a))
			n.tokens--
			a.tell(now)
			a.silent = false
		}
	}
	return events, again, ever
}

// worst are those of which something is to be told, the worst first.
func worst[K comparable](all map[K]*account, name func(K) string) (keys []K) {
	for k, a := range all {
		if _, pending := a.due(); pending {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b K) int {
		return cmp.Or(cmp.Compare(all[b].level, all[a].level), cmp.Compare(name(a), name(b)))
	})
	return keys
}

// covered says whether the Events of portals say all that there is to say of a
// volume: it lost only what several lost, or is well again, and nobody was told that
// it was not.
func (n *Narrator) covered(node string, a *account) bool {
	if a.level != 1 {
		return a.level == 0 && a.silent
	}
	for _, p := range a.paths {
		if !p.Up && n.portals[portal{node, p.Portal}].level < 2 {
			return false
		}
	}
	return true
}

// portalEvent says what a node has of a portal.
func portalEvent(of portal, a *account) Event {
	if a.level == 0 {
		return Event{Node: of.node, Reason: "PathUp", Note: fmt.Sprintf("portal %s: all %d volumes have it%s", of.address, a.all, a.often())}
	}
	return Event{Node: of.node, Reason: "PathDown", Warning: true, Note: fmt.Sprintf("portal %s: %d of %d volumes have lost it%s", of.address, a.down, a.all, a.often())}
}

// volumeEvent says what a volume has left.
func volumeEvent(of Subject, a *account) Event {
	e := Event{Node: of.Node, Volume: of.Volume}
	var lost []string
	for _, p := range a.paths {
		if !p.Up {
			lost = append(lost, strings.TrimSuffix(p.Portal+": "+p.LastError, ": "))
		}
	}
	switch a.level {
	case 0:
		e.Reason, e.Note = "PathUp", fmt.Sprintf("all %d paths work%s", len(a.paths), a.often())
	case 1:
		e.Reason, e.Warning = "MultipathDegraded", true
		e.Note = fmt.Sprintf("%d of %d paths work%s; lost: %s", len(a.paths)-len(lost), len(a.paths), a.often(), strings.Join(lost, "; "))
	default:
		e.Reason, e.Warning = "AllPathsLost", true
		e.Note = fmt.Sprintf("none of %d paths works, I/O waits%s: %s", len(a.paths), a.often(), strings.Join(lost, "; "))
	}
	e.Note = clip(e.Note, maxNote)
	return e
}

// often says that something flaps.
func (s *stream) often() string {
	if s.changes < 3 {
		return ""
	}
	return fmt.Sprintf(" (it changed %d times in %v)", s.changes, s.last.Sub(s.first).Round(time.Second))
}

// clip shortens a text to so many bytes.
func clip(s string, most int) string {
	return strings.ToValidUTF8(s[:min(len(s), most)], "")
}
