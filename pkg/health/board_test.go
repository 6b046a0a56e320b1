package health

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/csi-mpath/csi-mpath/pkg/api/v1alpha1"
)

// start is a moment.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// seen is a volume with paths a, b, c ..., up or not.
func seen(up ...bool) (s Seen) {
	for i, u := range up {
		p := Path{Portal: string(rune('a' + i)), Up: u, State: "live"}
		if !u {
			p.State, p.Cause = "connecting", fmt.Sprint("reset ", rand.Int())
		}
		s.Paths = append(s.Paths, p)
	}
	return s
}

// next takes what is to be written, which must be of a volume.
func next(t *testing.T, b *Board, now time.Time, want string) *v1alpha1.MultipathVolumeStatus {
	t.Helper()
	volume, status, wait := b.Next(now)
	if volume != want || (volume == "") != (status == nil) {
		t.Fatalf("got %q %v, wait %v; want %q", volume, status, wait, want)
	}
	return status
}

func TestAStatusSaysHowThePathsAre(t *testing.T) {
	b := NewBoard()
	for _, w := range []struct {
		seen                  Seen
		state                 v1alpha1.State
		working               string
		accessible, redundant bool
	}{
		{seen(true, true), v1alpha1.Healthy, "2/2", true, true},
		{seen(true, false), v1alpha1.Degraded, "1/2", true, false},
		{seen(false, false), v1alpha1.Unreachable, "0/2", false, false},
		{seen(), v1alpha1.Unreachable, "0/0", false, false},
	} {
		b.Observe(start, "v", w.seen)
		s := next(t, b, start, "v")
		b.next = start
		if s.State != w.state || s.Working != w.working || len(s.Paths) != len(w.seen.Paths) ||
			meta.IsStatusConditionTrue(s.Conditions, v1alpha1.Accessible) != w.accessible || meta.IsStatusConditionTrue(s.Conditions, v1alpha1.Redundant) != w.redundant {
			t.Errorf("got %+v, want %+v", s, w)
		}
	}
}

// TestOnlyTransitionsAreWritten: another cause of the same loss is none.
func TestOnlyTransitionsAreWritten(t *testing.T) {
	b := NewBoard()
	b.Observe(start, "v", seen(true, false))
	first := next(t, b, start, "v")
	for i := range 100 {
		now := start.Add(time.Duration(i) * time.Minute)
		b.Observe(now, "v", seen(true, false))
		next(t, b, now, "")
	}
	later := start.Add(time.Hour)
	b.Observe(later, "v", seen(true, true))
	second := next(t, b, later, "v")
	if !second.Paths[0].Since.Equal(&first.Paths[0].Since) || !second.Paths[1].Since.Time.Equal(later) || second.Paths[1].LastError != "" {
		t.Errorf("times are wrong: %+v, then %+v", first.Paths, second.Paths)
	}
	if c := meta.FindStatusCondition(second.Conditions, v1alpha1.Redundant); !c.LastTransitionTime.Time.Equal(later) {
		t.Errorf("got %+v", c)
	}
}

func TestAChangeThatIsUndoneBeforeItsTurnIsNotWritten(t *testing.T) {
	b := NewBoard()
	b.Observe(start, "v", seen(true, true))
	next(t, b, start, "v")
	b.Observe(start, "v", seen(true, false))
	next(t, b, start, "")
	b.Observe(start, "v", seen(true, true))
	if _, _, wait := b.Next(start.Add(writeEvery)); wait != 0 {
		t.Errorf("it waits %v for nothing", wait)
	}
}

func TestWhatIsKnownIsNotWrittenAgain(t *testing.T) {
	b := NewBoard()
	b.Observe(start, "v", seen(true, false))
	s := next(t, b, start, "v")
	after := NewBoard()
	after.Known("v", *s)
	after.Observe(start.Add(time.Hour), "v", seen(true, false))
	next(t, after, start.Add(time.Hour), "")
}

func TestAWriteThatFailedComesAgain(t *testing.T) {
	b := NewBoard()
	b.Observe(start, "v", seen(true))
	want := next(t, b, start, "v")
	b.Failed(start, "v")
	if _, _, wait := b.Next(start); wait != writeAgain {
		t.Errorf("it waits %v", wait)
	}
	if got := next(t, b, start.Add(writeAgain), "v"); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	b.Failed(start, "v")
	b.Forget("v")
	b.Failed(start, "v")
	next(t, b, start.Add(time.Hour), "")
}

func TestStatusesAreBounded(t *testing.T) {
	var s Seen
	for i := range 2 * maxPaths {
		s.Paths = append(s.Paths, Path{Portal: fmt.Sprint(i), Cause: strings.Repeat("é", maxCause) + "x"})
	}
	s.Paths[0].Cause = "x" + s.Paths[0].Cause
	b := NewBoard()
	b.Observe(start, "v", s)
	got := next(t, b, start, "v")
	if len(got.Paths) != maxPaths || got.Working != "0/128" {
		t.Errorf("%d paths, %s", len(got.Paths), got.Working)
	}
	for _, p := range got.Paths {
		if len(p.LastError) > maxCause || !utf8.ValidString(p.LastError) {
			t.Errorf("%q", p.LastError)
		}
	}
}

// TestWritesAreFewAndInTheEndRight: whatever the paths of fifty volumes do, and the
// API server refuses, no second has two writes, and when all is quiet each volume's
// last write is how it is.
func TestWritesAreFewAndInTheEndRight(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		b, now, last := NewBoard(), start, start.Add(-time.Hour)
		truth, written := map[string]Seen{}, map[string]*v1alpha1.MultipathVolumeStatus{}
		for step := range 3000 {
			now = now.Add(time.Duration(r.IntN(300)) * time.Millisecond)
			if step < 2000 {
				v := fmt.Sprint("v", r.IntN(50))
				if r.IntN(20) == 0 {
					delete(truth, v)
					delete(written, v)
					b.Forget(v)
				} else {
					truth[v] = seen(r.IntN(2) == 0, r.IntN(3) == 0)
					b.Observe(now, v, truth[v])
				}
			}
			v, s, wait := b.Next(now)
			if s == nil {
				if step >= 2000 {
					now = now.Add(wait)
				}
				continue
			}
			if now.Sub(last) < writeEvery {
				t.Fatalf("seed %d: two writes within %v", seed, now.Sub(last))
			}
			last = now
			if step < 2000 && r.IntN(10) == 0 {
				b.Failed(now, v)
				continue
			}
			written[v] = s
		}
		for v, want := range truth {
			got := written[v]
			if got == nil || got.Paths[0].Up != want.Paths[0].Up || got.Paths[1].Up != want.Paths[1].Up {
				t.Errorf("seed %d: %s is %+v, written is %+v", seed, v, want, got)
			}
		}
	}
}
