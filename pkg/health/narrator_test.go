package health

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/api/v1alpha1"
)

// stage is a narrator, its time, and what it told.
type stage struct {
	*Narrator
	now   time.Time
	told  []Event
	times []time.Time
	state map[Subject]v1alpha1.MultipathVolumeStatus
}

func newStage() *stage {
	return &stage{Narrator: NewNarrator(), now: start, state: map[Subject]v1alpha1.MultipathVolumeStatus{}}
}

// is has a volume of node n observed with paths a, b, ..., up or not.
func (s *stage) is(volume string, up ...bool) {
	of := Subject{"n", volume}
	before := s.state[of]
	s.state[of] = statusOf(s.now, &before, seen(up...))
	s.Observe(s.now, of, s.state[of])
}

// until lets time pass, and events be told when the narrator says so.
func (s *stage) until(end time.Time) {
	for {
		events, again, ever := s.Due(s.now)
		for range events {
			s.times = append(s.times, s.now)
		}
		s.told = append(s.told, events...)
		if !ever || again.After(end) {
			s.now = end
			return
		}
		s.now = again
	}
}

func (s *stage) pass(d time.Duration) { s.until(s.now.Add(d)) }

// reasons takes what was told of a volume, or of the node (""), or of all ("*").
func (s *stage) reasons(volume string) string {
	var out []string
	for _, e := range s.told {
		if e.Volume == volume || volume == "*" {
			out = append(out, e.Reason)
		}
	}
	return strings.Join(out, " ")
}

func TestALossAndItsEndAreTold(t *testing.T) {
	s := newStage()
	s.is("v", true, true)
	s.pass(time.Hour)
	s.is("v", true, false)
	s.pass(time.Minute)
	s.is("v", false, false)
	s.pass(time.Minute)
	s.is("v", true, true)
	s.pass(time.Minute)
	if got := s.reasons("v"); got != "MultipathDegraded AllPathsLost PathUp" {
		t.Errorf("of the volume: %s", got)
	}
	if got := s.reasons(""); got != "PathDown PathDown PathUp PathUp" {
		t.Errorf("of the node: %s", got)
	}
	for _, e := range s.told {
		if e.Node != "n" || e.Note == "" || e.Warning == (e.Reason == "PathUp") || strings.Contains(e.Reason, "Lost") && !strings.Contains(e.Note, "reset") {
			t.Errorf("got %+v", e)
		}
	}
}

func TestABlipIsNotTold(t *testing.T) {
	s := newStage()
	s.is("v", true, true)
	s.is("v", true, false)
	s.pass(gatherFor / 2)
	s.is("v", true, true)
	s.pass(time.Hour)
	if len(s.told) > 0 {
		t.Errorf("got %+v", s.told)
	}
}

// TestAPathThatFlapsIsToldOfNowAndThen, and how often it changed: a hundred flaps
// make at most four Events a minute, of one path of two, and of the only path.
func TestAPathThatFlapsIsToldOfNowAndThen(t *testing.T) {
	for _, paths := range []int{1, 2} {
		s := newStage()
		up := make([]bool, paths)
		up[0] = true
		for i := range 2000 {
			up[paths-1] = i%2 == 0
			s.is("v", up...)
			s.pass(300 * time.Millisecond)
		}
		if most := inAMinute(s.times); most > 4 || len(s.told) < 4 {
			t.Errorf("%d paths: %d Events in a minute, %d of all", paths, most, len(s.told))
		}
		if last := s.told[len(s.told)-1]; !strings.Contains(last.Note, "times in") {
			t.Errorf("%q does not say that it flaps", last.Note)
		}
		if testing.Verbose() {
			t.Logf("%d paths: 1000 flaps in 10 minutes: %d Events, at most %d in a minute", paths, len(s.told), inAMinute(s.times))
		}
	}
}

// inAMinute is how many there are in the busiest minute.
func inAMinute(times []time.Time) (most int) {
	for i := range times {
		n := 0
		for _, t := range times[i:] {
			if t.Sub(times[i]) < time.Minute {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

func TestWhatGetsWorseIsNotHeldBack(t *testing.T) {
	s := newStage()
	s.is("v", true, true)
	s.is("v", true, false)
	s.pass(gatherFor)
	s.is("v", false, false)
	s.pass(gatherFor)
	if got := s.reasons("v"); got != "MultipathDegraded AllPathsLost" {
		t.Errorf("after %v: %s", s.now.Sub(start), got)
	}
}

// TestAPortalThatManyVolumesShareIsToldOfOnce, though statuses come one a second.
func TestAPortalThatManyVolumesShareIsToldOfOnce(t *testing.T) {
	s := newStage()
	for i := range 20 {
		s.is(fmt.Sprint("v", i), true, true)
	}
	for _, up := range []bool{false, true} {
		s.pass(time.Hour)
		for i := range 20 {
			s.is(fmt.Sprint("v", i), true, up)
			s.pass(time.Second)
		}
	}
	s.pass(time.Hour)
	if got := s.reasons(""); !strings.HasPrefix(got, "PathDown") || !strings.HasSuffix(got, "PathUp") || len(s.told) > 3 {
		t.Errorf("got %+v", s.told)
	}
}

func TestAVolumeThatLosesItsShareOfAGoodPortalIsToldOf(t *testing.T) {
	s := newStage()
	for i := range 20 {
		s.is(fmt.Sprint("v", i), true, true)
	}
	s.is("v7", true, false)
	s.pass(time.Minute)
	if got := s.reasons("v7"); got != "MultipathDegraded" {
		t.Errorf("got %q", got)
	}
}

// TestOldNewsAreNotToldAgain: by a controller that was just started.
func TestOldNewsAreNotToldAgain(t *testing.T) {
	s := newStage()
	s.is("old", true, false)
	s.is("new", true, true)
	s.pass(time.Hour)
	s.is("new", true, false)
	next := newStage()
	next.now = s.now.Add(newsFor / 2)
	for of, status := range s.state {
		next.Observe(next.now, of, status)
	}
	next.Observe(next.now, Subject{"n", "empty"}, v1alpha1.MultipathVolumeStatus{})
	next.pass(time.Minute)
	if next.reasons("old") != "" || next.reasons("new") != "MultipathDegraded" {
		t.Errorf("got %+v", next.told)
	}
}

func TestWhatIsForgottenIsNotTold(t *testing.T) {
	s := newStage()
	s.is("v", true, true)
	s.is("v", false, false)
	s.Forget(s.now, Subject{"n", "v"})
	s.Forget(s.now, Subject{"n", "v"})
	s.pass(time.Hour)
	if len(s.told) > 0 || len(s.volumes) > 0 || len(s.portals) > 0 {
		t.Errorf("told %+v, has %v, %v", s.told, s.volumes, s.portals)
	}
}

func TestAPortalThatWasTakenAwayIsForgotten(t *testing.T) {
	s := newStage()
	s.is("v", true, true, false)
	s.is("v", true, true)
	s.pass(time.Hour)
	if len(s.portals) != 2 || len(s.told) > 0 {
		t.Errorf("has %v, told %+v", s.portals, s.told)
	}
}

// TestEventsAreFewAndInTheEndTrue: whatever happens to the paths of many volumes, no
// subject is told of more than thrice a minute, all together no more than the rate
// allows, and when all is quiet the last that was told is how it is, or the portals'
// Events say it.
func TestEventsAreFewAndInTheEndTrue(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		s := newStage()
		volumes := 1 + r.IntN(120)
		for range 1500 {
			s.is(fmt.Sprint("v", r.IntN(volumes)), r.IntN(8) > 0, r.IntN(3) > 0)
			s.pass(time.Duration(r.IntN(400)) * time.Millisecond)
		}
		s.pass(time.Hour)
		checkRates(t, seed, s)
		checkEnd(t, seed, s)
	}
}

func checkRates(t *testing.T, seed uint64, s *stage) {
	t.Helper()
	of := map[string][]time.Time{}
	for i, e := range s.told {
		key := e.Volume
		if key == "" {
			key = strings.Fields(e.Note)[1]
		}
		of[key] = append(of[key], s.times[i])
	}
	for key, times := range of {
		if n := inAMinute(times); n > 3 {
			t.Errorf("seed %d: %d Events of %s in a minute", seed, n, key)
		}
	}
	if n, most := inAMinute(s.times), eventBurst+int(time.Minute/eventEvery); n > most {
		t.Errorf("seed %d: %d Events in a minute, want at most %d", seed, n, most)
	}
}

func checkEnd(t *testing.T, seed uint64, s *stage) {
	t.Helper()
	last := map[string]string{}
	for _, e := range s.told {
		last[e.Volume] = e.Reason
	}
	want := map[v1alpha1.State]string{v1alpha1.Healthy: "PathUp", v1alpha1.Degraded: "MultipathDegraded", v1alpha1.Unreachable: "AllPathsLost"}
	for of, status := range s.state {
		got, told := last[of.Volume]
		silent := s.volumes[of].silent && status.State != v1alpha1.Unreachable
		if got != want[status.State] && !silent && (told || status.State != v1alpha1.Healthy) {
			t.Errorf("seed %d: %s is %s, told was %q", seed, of.Volume, status.State, got)
		}
	}
	for key, a := range s.portals {
		if a.told != a.level {
			t.Errorf("seed %d: portal %s is at %d, told was %d", seed, key.address, a.level, a.told)
		}
	}
}
