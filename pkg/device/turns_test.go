package device

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
)

func always(u datapath.Urgency) func() datapath.Urgency {
	return func() datapath.Urgency { return u }
}

// crowd is a turnstile with a clock that jumps from one change to the next.
type crowd struct {
	t      turnstile
	now    time.Time
	begun  []*turn
	at     map[*turn]string // portal of each
	flight []*turn
	// takes is how long a login takes.
	takes func(*turn) time.Duration
}

func newCrowd(takes time.Duration) *crowd {
	return &crowd{t: newTurnstile(), now: time.Unix(1000, 0), at: map[*turn]string{}, takes: func(*turn) time.Duration { return takes }}
}

func (c *crowd) arrive(portal string, u datapath.Urgency) *turn {
	w := &turn{urgency: always(u), came: c.now}
	c.at[w] = portal
	c.t.arrive(portal, w)
	return w
}

// end is when the login under way that ends first does.
func (c *crowd) end() (w *turn, at time.Time) {
	for _, f := range c.flight {
		if e := f.passed.Add(c.takes(f)); w == nil || e.Before(at) {
			w, at = f, e
		}
	}
	return w, at
}

// step lets one login begin or end, or time pass; false: nobody waits.
func (c *crowd) step() bool {
	if w, at := c.end(); w != nil && !at.After(c.now) {
		c.t.leave(w)
		c.flight = slices.DeleteFunc(c.flight, func(f *turn) bool { return f == w })
		return true
	}
	w, wake := c.t.next(c.now)
	if w != nil {
		c.begun, c.flight = append(c.begun, w), append(c.flight, w)
		return true
	}
	if len(c.t.waiting) == 0 {
		return false
	}
	if w, at := c.end(); w != nil && (wake.IsZero() || at.Before(wake)) {
		wake = at
	}
	c.now = wake
	return true
}

func (c *crowd) run() {
	for c.step() {
	}
}

func TestALoginAloneDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLogins()
		start := time.Now()
		for range portalBurst {
			leave, err := l.turn(t.Context(), "a", always(datapath.Redundant))
			if err != nil {
				t.Fatal(err)
			}
			leave()
		}
		if d := time.Since(start); d != 0 {
			t.Fatalf("waited %v", d)
		}
	})
}

func TestAThousandVolumesAreBackWellWithinTheLimit(t *testing.T) {
	c := newCrowd(20 * time.Millisecond)
	start := c.now
	for range 1000 {
		c.arrive("a", datapath.Redundant)
		c.arrive("b", datapath.Redundant)
	}
	c.run()
	if d := c.now.Sub(start); len(c.begun) != 2000 || d > 15*time.Second {
		t.Fatalf("%d logins in %v", len(c.begun), d)
	}
}

// The slow twin of a gate: all passes are remembered and counted.
func checkGate(t *testing.T, name string, passed []time.Time, every time.Duration, burst int) {
	t.Helper()
	for i := range passed {
		for k := i; k < len(passed); k++ {
			if most := burst + int(passed[k].Sub(passed[i])/every); k-i+1 > most {
				t.Fatalf("%s: %d logins within %v, at most %d may be", name, k-i+1, passed[k].Sub(passed[i]), most)
			}
		}
	}
}

func TestNoGateLetsMoreThroughThanItMay(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		c := newCrowd(0)
		c.takes = func(w *turn) time.Duration { return time.Duration(w.came.UnixNano()%3) * 700 * time.Millisecond }
		for range 600 {
			c.arrive(string(rune('a'+rng.IntN(4))), datapath.Urgency(rng.IntN(3)))
			for rng.IntN(3) == 0 && c.step() {
			}
			c.now = c.now.Add(time.Duration(rng.IntN(8e6)))
		}
		c.run()
		all, by := []time.Time{}, map[string][]time.Time{}
		for _, w := range c.begun {
			all = append(all, w.passed)
			by[c.at[w]] = append(by[c.at[w]], w.passed)
		}
		checkGate(t, "process", all, time.Second/processLogins, processBurst)
		for p, passed := range by {
			checkGate(t, "portal "+p, passed, time.Second/portalLogins, portalBurst)
		}
	}
}

func TestTheMostUrgentLoginGoesFirst(t *testing.T) {
	c := newCrowd(0)
	for range portalBurst {
		c.arrive("a", datapath.Redundant)
	}
	c.run()
	for _, u := range []datapath.Urgency{datapath.Redundant, datapath.Dark, datapath.Fencing, datapath.Dark, datapath.Fencing} {
		c.arrive("a", u)
	}
	c.begun = nil
	c.run()
	var got []datapath.Urgency
	for _, w := range c.begun {
		got = append(got, w.urgency())
	}
	if !slices.Equal(got, []datapath.Urgency{datapath.Fencing, datapath.Fencing, datapath.Dark, datapath.Dark, datapath.Redundant}) {
		t.Fatalf("%v", got)
	}
}

func TestALoginIsNotOvertakenForEver(t *testing.T) {
	c := newCrowd(0)
	patient := c.arrive("a", datapath.Redundant)
	for range 40 * portalLogins { // as many urgent ones as begin in 40 s
		c.arrive("a", datapath.Fencing)
	}
	c.run()
	if d := patient.passed.Sub(patient.came); d > maxTurnWait+time.Second {
		t.Fatalf("waited %v", d)
	}
}

func TestAPortalThatSwallowsLoginsHoldsUpNoOther(t *testing.T) {
	c := newCrowd(0)
	c.takes = func(w *turn) time.Duration {
		if c.at[w] == "hole" {
			return time.Hour
		}
		return 0
	}
	for range 500 {
		c.arrive("hole", datapath.Fencing)
	}
	good := c.arrive("good", datapath.Redundant)
	for i := 0; good.passed.IsZero() && i < 1e6; i++ {
		c.step()
	}
	if d := good.passed.Sub(good.came); d > time.Second {
		t.Fatalf("the login at the good portal waited %v", d)
	}
	c.run()
	if d := c.now.Sub(good.came); len(c.begun) != 501 || d > 30*time.Second {
		t.Fatalf("%d tried within %v", len(c.begun), d)
	}
}

func TestALoginThatIsGivenUpLeavesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLogins()
		for range portalInFlight {
			if _, err := l.turn(t.Context(), "a", always(datapath.Dark)); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), loginLease/2)
		defer cancel()
		if _, err := l.turn(ctx, "a", always(datapath.Dark)); err == nil {
			t.Fatal("more at a time than the bound")
		}
		if n := l.Stats().Waiting; n != 0 {
			t.Fatalf("%d still wait", n)
		}
		start := time.Now()
		leave, err := l.turn(t.Context(), "a", always(datapath.Dark)) // when the leases end
		if err != nil || time.Since(start) != loginLease/2 {
			t.Fatalf("%v after %v", err, time.Since(start))
		}
		leave()
	})
}
