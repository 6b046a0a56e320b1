// Package health turns what paths do into what people see: statuses of
// MultipathVolumes (Board, on nodes), and Events about nodes and volumes (Narrator,
// in the controller). Both are pure: they are told the time, write nothing, and say
// what is to be written and when to ask again.
package health

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-mpath/csi-mpath/pkg/api/v1alpha1"
)

// Path is one path as the path table has it.
type Path struct {
	Portal string
	Up     bool
	State  string
	Cause  string // why it is not up
}

// Seen is a volume at one moment. Portals are unique.
type Seen struct {
	Paths      []Path
	Generation int64 // of its tunables
}

// Board holds the statuses of one node's volumes, and says which are to be written:
// those that changed, in the order in which they did, one per writeEvery. A change
// that is undone before its turn is not written. Not for several goroutines.
type Board struct {
	slots map[string]*slot
	queue []string  // volumes that may have to be written, each once
	next  time.Time // no write before
}

type slot struct {
	status  v1alpha1.MultipathVolumeStatus
	written *v1alpha1.MultipathVolumeStatus // nil: nobody knows what is there
	queued  bool
}

// NewBoard has no volumes.
func NewBoard() *Board { return &Board{slots: map[string]*slot{}} }

// Known says what is written of a volume already. It changes nothing of one that
// was observed.
func (b *Board) Known(volume string, written v1alpha1.MultipathVolumeStatus) {
	if b.slots[volume] == nil {
		b.slots[volume] = &slot{status: *written.DeepCopy(), written: written.DeepCopy()}
	}
}

// Observe notes how a volume is.
func (b *Board) Observe(now time.Time, volume string, seen Seen) {
	s := b.slots[volume]
	if s == nil {
		s = &slot{}
		b.slots[volume] = s
	}
	s.status = statusOf(now, &s.status, seen)
	b.enqueue(volume, s)
}

// Note adds something that happened to a volume; of one reason the last one counts.
// Of a volume that was never observed nothing is kept.
func (b *Board) Note(now time.Time, volume, reason, message string) {
	s := b.slots[volume]
	if s == nil {
		return
	}
	note := v1alpha1.Note{Reason: reason, Message: clip(message, maxNote), Time: metav1.NewTime(now)}
	notes := slices.DeleteFunc(slices.Clone(s.status.Notes), func(n v1alpha1.Note) bool { return n.Reason == reason })
	s.status.Notes = append(notes[max(0, len(notes)-maxNotes+1):], note)
	b.enqueue(volume, s)
}

// Forget drops a volume: there is nothing to be written of it any more.
func (b *Board) Forget(volume string) {
	delete(b.slots, volume)
	b.queue = slices.DeleteFunc(b.queue, func(v string) bool { return v == volume })
}

// Next is what is to be written now. Otherwise wait says how long there is nothing to
// do; 0: until something is observed. Who cannot write it calls Failed.
func (b *Board) Next(now time.Time) (volume string, status *v1alpha1.MultipathVolumeStatus, wait time.Duration) {
	for len(b.queue) > 0 {
		volume = b.queue[0]
		s := b.slots[volume]
		if s.changed() {
			if wait = b.next.Sub(now); wait > 0 {
				return "", nil, wait
			}
		}
		b.queue, s.queued = b.queue[1:], false
		if s.changed() {
			b.next, s.written = now.Add(writeEvery), s.status.DeepCopy()
			return volume, s.status.DeepCopy(), 0
		}
	}
	return "", nil, 0
}

// Failed says that what Next gave could not be written.
func (b *Board) Failed(now time.Time, volume string) {
	b.next = now.Add(writeAgain)
	if s := b.slots[volume]; s != nil {
		s.written = nil
		b.enqueue(volume, s)
	}
}

func (b *Board) enqueue(volume string, s *slot) {
	if !s.queued && s.changed() {
		b.queue, s.queued = append(b.queue, volume), true
	}
}

// changed says whether what is written is not how it is. Times and causes are no
// changes: a path that does not come back fails in many ways.
func (s *slot) changed() bool {
	w := s.written
	return w == nil || w.State != s.status.State || w.Generation != s.status.Generation ||
		!slices.EqualFunc(w.Paths, s.status.Paths, func(a, b v1alpha1.PathStatus) bool {
			return a.Portal == b.Portal && a.Up == b.Up && a.State == b.State
		}) || !slices.EqualFunc(w.Notes, s.status.Notes, func(a, b v1alpha1.Note) bool {
		return a.Reason == b.Reason && a.Time.Unix() == b.Time.Unix()
	})
}

// statusOf is what is seen, with the times of what was so before.
func statusOf(now time.Time, before *v1alpha1.MultipathVolumeStatus, seen Seen) v1alpha1.MultipathVolumeStatus {
	s := v1alpha1.MultipathVolumeStatus{Generation: seen.Generation, Conditions: slices.Clone(before.Conditions), Notes: slices.Clone(before.Notes)}
	up := 0
	for _, p := range seen.Paths {
		if p.Up {
			up++
		}
		s.Paths = append(s.Paths, pathOf(now, before.Paths, p))
	}
	slices.SortFunc(s.Paths, func(a, b v1alpha1.PathStatus) int { return cmp.Compare(a.Portal, b.Portal) })
	s.Paths = s.Paths[:min(len(s.Paths), maxPaths)]
	s.State, s.Working = stateOf(up, len(seen.Paths)), fmt.Sprintf("%d/%d", up, len(seen.Paths))
	condition(&s, now, v1alpha1.Accessible, s.State != v1alpha1.Unreachable, "PathsWork", "AllPathsLost")
	condition(&s, now, v1alpha1.Redundant, s.State == v1alpha1.Healthy, "AllPathsWork", "MultipathDegraded")
	return s
}

func stateOf(up, all int) v1alpha1.State {
	switch {
	case up == 0:
		return v1alpha1.Unreachable
	case up < all:
		return v1alpha1.Degraded
	}
	return v1alpha1.Healthy
}

func pathOf(now time.Time, before []v1alpha1.PathStatus, p Path) v1alpha1.PathStatus {
	out := v1alpha1.PathStatus{Portal: p.Portal, Up: p.Up, State: p.State, Since: metav1.NewTime(now)}
	if !p.Up {
		out.LastError = clip(p.Cause, maxCause)
	}
	for _, b := range before {
		if b.Portal == p.Portal && b.Up == p.Up && b.State == p.State {
			out.Since = b.Since
		}
	}
	return out
}

// condition sets one condition, whose time stays as long as it does.
func condition(s *v1alpha1.MultipathVolumeStatus, now time.Time, kind string, is bool, yes, no string) {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: yes, LastTransitionTime: metav1.NewTime(now), Message: s.Working + " paths work"}
	if !is {
		c.Status, c.Reason = metav1.ConditionFalse, no
	}
	meta.SetStatusCondition(&s.Conditions, c)
}
