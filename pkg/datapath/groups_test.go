package datapath

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// inUse names the paths that new I/O goes over.
func (r *rig) inUse() (s string) {
	synctest.Wait()
	for _, p := range r.dev.Status().Paths {
		if p.InUse {
			s += p.Name
		}
	}
	return s
}

func (r *rig) wantInUse(want string) {
	r.Helper()
	if got := r.inUse(); got != want {
		r.Fatalf("in use: %q, want %q", got, want)
	}
}

// access changes a path's access state as its target would.
func (r *rig) access(i int, a Access) {
	p := r.paths[i]
	p.set(func() { p.facts.Access = a })
	p.evidence(blk.AccessChanged)
	time.Sleep(2 * refreshGap)
}

func twoGroups(failback time.Duration) func(*Config, []*fakePath) {
	return func(c *Config, ps []*fakePath) {
		c.Failback = failback
		for _, p := range ps {
			p.auto = true
		}
		ps[2].facts.Access, ps[3].facts.Access = NonOptimized, NonOptimized
		c.MinPaths = len(ps)
	}
}

func TestIOUsesTheBestGroupAndStaysThereWhileItHasAPath(t *testing.T) {
	withDevice(t, 4, twoGroups(FailbackImmediate), func(r *rig) {
		r.wantInUse("p0p1")
		r.access(0, Standby)
		r.wantInUse("p1")
		r.access(1, Unavailable)
		r.wantInUse("p2p3")
	})
}

func TestImmediateFailbackReturnsAtOnce(t *testing.T) {
	withDevice(t, 4, twoGroups(FailbackImmediate), func(r *rig) {
		r.access(0, Standby)
		r.access(1, Standby)
		r.wantInUse("p2p3")
		r.access(1, Optimized)
		r.wantInUse("p1")
	})
}

func TestDelayedFailbackReturnsAfterItsTime(t *testing.T) {
	withDevice(t, 4, twoGroups(10*time.Second), func(r *rig) {
		r.access(0, Standby)
		r.access(1, Standby)
		r.access(1, Optimized)
		r.wantInUse("p2p3")
		time.Sleep(9 * time.Second)
		r.wantInUse("p2p3")
		time.Sleep(2 * time.Second)
		r.wantInUse("p1")
		if r.saw(Failback) != 1 {
			t.Fatal("no event")
		}
	})
}

func TestDelayedFailbackStartsAgainWhenTheGroupGoesAwayMeanwhile(t *testing.T) {
	withDevice(t, 4, twoGroups(10*time.Second), func(r *rig) {
		r.access(0, Standby)
		r.access(1, Standby)
		r.access(1, Optimized)
		time.Sleep(8 * time.Second)
		r.access(1, Standby)
		r.access(1, Optimized)
		time.Sleep(8 * time.Second)
		r.wantInUse("p2p3")
		time.Sleep(3 * time.Second)
		r.wantInUse("p1")
	})
}

func TestManualFailbackWaitsForTheOperator(t *testing.T) {
	withDevice(t, 4, twoGroups(FailbackManual), func(r *rig) {
		r.access(0, Standby)
		r.access(1, Standby)
		r.access(0, Optimized)
		r.access(1, Optimized)
		time.Sleep(time.Hour)
		r.wantInUse("p2p3")
		r.dev.Failback()
		r.wantInUse("p0p1")
	})
}

func TestNoFailbackPolicyKeepsIOOnAnEmptyGroup(t *testing.T) {
	withDevice(t, 4, twoGroups(FailbackManual), func(r *rig) {
		r.access(0, Standby)
		r.access(1, Standby)
		r.access(1, Optimized)
		r.access(2, Standby)
		r.access(3, Standby)
		r.wantInUse("p1")
	})
}

func TestADrainedPathIsUsedOnlyWhenNoOtherIsLeft(t *testing.T) {
	withDevice(t, 2, func(c *Config, ps []*fakePath) { c.MinPaths = 2; ps[0].auto, ps[1].auto = true, true }, func(r *rig) {
		if err := r.dev.Drain("p0"); err != nil {
			t.Fatal(err)
		}
		r.wantInUse("p1")
		if err := r.dev.Drain("p1"); err == nil {
			t.Fatal("the last path was drained")
		}
		r.access(1, Offline)
		r.wantInUse("p0")
		r.access(1, Optimized)
		r.wantInUse("p1")
		if err := r.dev.Enable("p0"); err != nil {
			t.Fatal(err)
		}
		r.wantInUse("p0p1")
	})
}

func TestAPreferredPathIsUsedWhateverItsGroup(t *testing.T) {
	withDevice(t, 4, twoGroups(FailbackManual), func(r *rig) {
		if err := r.dev.Prefer("p3"); err != nil {
			t.Fatal(err)
		}
		r.wantInUse("p3")
		r.access(3, Standby)
		r.wantInUse("p0p1")
		if err := r.dev.Prefer("p9"); !errors.Is(err, ErrNoSuchPath) {
			t.Fatal(err)
		}
	})
}

func TestADrainedPathStaysDrainedWhenItReconnects(t *testing.T) {
	withDevice(t, 2, func(c *Config, ps []*fakePath) { c.MinPaths = 2 }, func(r *rig) {
		if err := r.dev.Drain("p0"); err != nil {
			t.Fatal(err)
		}
		r.paths[0].lose(errCut, false)
		time.Sleep(time.Second)
		r.wantInUse("p1")
		if st := r.dev.Status().Paths[0]; st.State != "live" || st.Group != "drained" {
			t.Fatalf("%+v", st)
		}
	})
}

// traffic keeps the judge awake with answers that took so long, for d.
func (r *rig) traffic(d time.Duration, each ...time.Duration) {
	c := newClient(r.T, r.dev)
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(judgePeriod / 2) {
		for i, lat := range each {
			p := r.paths[i]
			p.set(func() {
				n := uint64(judgePeriod / 2 / lat)
				p.stats.Answers += n
				p.stats.Busy += time.Duration(n) * lat
			})
		}
		c.read(0)
	}
	c.lane.Close()
}

func judged(c *Config, ps []*fakePath) {
	c.MinPaths = len(ps)
	for _, p := range ps {
		p.auto = true
	}
}

func TestAPathThatBecameSlowLosesItsTrafficWithinASecond(t *testing.T) {
	withDevice(t, 2, judged, func(r *rig) {
		r.traffic(time.Second, 200*time.Microsecond, 200*time.Microsecond)
		r.wantInUse("p0p1")
		r.paths[1].set(func() { r.paths[1].probe = 10 * time.Millisecond })
		r.traffic(time.Second, 200*time.Microsecond, 10*time.Millisecond)
		r.wantInUse("p0")
		if r.saw(PathMarginal) != 1 || r.dev.Status().Paths[1].Group != "marginal" {
			t.Fatal("no mark, or no event")
		}
	})
}

func TestAMarginalPathComesBackWhenItsProbesAreQuick(t *testing.T) {
	withDevice(t, 2, judged, func(r *rig) {
		r.paths[1].set(func() { r.paths[1].probe = 10 * time.Millisecond })
		r.traffic(2*time.Second, 200*time.Microsecond, 10*time.Millisecond)
		r.wantInUse("p0")
		time.Sleep(20 * time.Second) // no traffic, and slow probes
		r.wantInUse("p0")
		r.paths[1].set(func() { r.paths[1].probe = time.Millisecond })
		time.Sleep((goodProbes + 2) * probeEvery)
		r.wantInUse("p0p1")
		if r.saw(PathRecovered) != 1 {
			t.Fatal("no event")
		}
	})
}

func TestAMarginalPathIsUsedWhenTheOthersAreGone(t *testing.T) {
	withDevice(t, 2, judged, func(r *rig) {
		r.paths[1].set(func() { r.paths[1].probe = 10 * time.Millisecond })
		r.traffic(2*time.Second, 200*time.Microsecond, 10*time.Millisecond)
		r.access(0, Offline)
		r.wantInUse("p1")
		c := newClient(r.T, r.dev)
		q := c.write(1, 1)
		synctest.Wait()
		if !c.answered(q) {
			t.Fatal("the last path was dropped")
		}
	})
}

func TestTheJudgeRestsWithoutTraffic(t *testing.T) {
	withDevice(t, 2, judged, func(r *rig) {
		time.Sleep(2 * judgeRest * judgePeriod)
		synctest.Wait()
		if !r.dev.resting.Load() {
			t.Fatal("it still looks")
		}
		newClient(r.T, r.dev).read(0)
		synctest.Wait()
		if r.dev.resting.Load() {
			t.Fatal("traffic does not wake it")
		}
	})
}

func TestAPathThatJoinsInStandbyIsReadAgainSoon(t *testing.T) {
	withDevice(t, 1, func(_ *Config, ps []*fakePath) { ps[0].facts.Access = Standby }, func(r *rig) {
		r.wantInUse("")
		r.paths[0].set(func() { r.paths[0].facts.Access = Optimized })
		time.Sleep(2 * transitionPeriod) // nobody tells: a path without I/O meets no unit attention
		r.wantInUse("p0")
	})
}
