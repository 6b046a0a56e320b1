package datapath

import (
	"testing"
	"time"
)

// stream plays a path that answers commands of size bytes, each after latency,
// depth of them at once.
type stream struct {
	latency time.Duration
	size    uint64
	depth   int
	off     bool
}

// court plays looks over streams and returns after how many a mark changed.
type court struct {
	j   judge
	now time.Duration
	obs []observation
}

func newCourt(n int) *court {
	c := &court{obs: make([]observation, n)}
	for i := range c.obs {
		c.obs[i] = observation{fit: true, inc: uint32(i + 1)}
	}
	c.now = time.Second
	c.j.look(c.now, c.obs)
	return c
}

func (c *court) look(all ...stream) bool {
	c.now += judgePeriod
	for i, s := range all {
		if s.off || s.latency == 0 {
			continue
		}
		n := uint64(judgePeriod / s.latency)
		c.obs[i].answers += n
		c.obs[i].busy += time.Duration(n) * s.latency
		c.obs[i].moved += n * uint64(s.depth) * s.size
		c.obs[i].waiting = min(s.latency/2, judgePeriod)
	}
	return c.j.look(c.now, c.obs)
}

// within returns the number of looks until the first mark, or -1.
func (c *court) within(looks int, all ...stream) int {
	for k := 1; k <= looks; k++ {
		if c.look(all...) {
			return k
		}
	}
	return -1
}

var (
	quick = stream{latency: 200 * time.Microsecond, size: 4096, depth: 16}
	slow  = stream{latency: 10 * time.Millisecond, size: 4096, depth: 16} // 50 times slower
)

func TestAPathFiftyTimesSlowerIsMarginalWithinASecond(t *testing.T) {
	for _, depth := range []int{1, 4, 32} {
		a, b := quick, slow
		a.depth, b.depth = depth, depth
		c := newCourt(2)
		if k := c.within(10, a, b); k < 0 || !c.j.marked(1) || c.j.marked(0) {
			t.Errorf("depth %d: marks after %d looks: %v %v", depth, k, c.j.marked(0), c.j.marked(1))
		}
	}
}

func TestAPathThatStopsAnsweringWhileItsSiblingDoesNotIsMarginal(t *testing.T) {
	c := newCourt(2)
	c.look(quick, quick)
	for k := range 10 {
		c.obs[1].waiting = time.Duration(k+1) * judgePeriod
		c.now += judgePeriod
		c.obs[0].answers += 500
		c.obs[0].busy += 100 * time.Millisecond
		c.obs[0].moved += 500 * 4096
		c.j.look(c.now, c.obs)
	}
	if !c.j.marked(1) {
		t.Fatal("not noticed within a second")
	}
}

func TestLargeCommandsAreNotSlowOnes(t *testing.T) {
	big := stream{latency: 10 * time.Millisecond, size: 1 << 20, depth: 1}
	if k := newCourt(2).within(100, quick, big); k >= 0 {
		t.Fatalf("the path with the large commands was condemned after %d looks", k)
	}
}

func TestADeepQueueIsNotASlowPath(t *testing.T) {
	deep := stream{latency: 8 * time.Millisecond, size: 4096, depth: 640}
	if k := newCourt(2).within(100, quick, deep); k >= 0 {
		t.Fatalf("the path with the deep queue was condemned after %d looks", k)
	}
}

func TestAllPathsSlowTogetherAreInOrder(t *testing.T) {
	if k := newCourt(3).within(100, slow, slow, slow); k >= 0 {
		t.Fatalf("condemned after %d looks", k)
	}
}

func TestTheLastPathIsNeverMarginal(t *testing.T) {
	if k := newCourt(1).within(100, slow); k >= 0 {
		t.Fatal("condemned with nothing beside it")
	}
	c := newCourt(3)
	worse := slow
	worse.latency *= 5
	for range 100 {
		c.look(quick, slow, worse)
	}
	if !c.j.marked(1) || !c.j.marked(2) || c.j.marked(0) {
		t.Fatalf("marks %v %v %v", c.j.marked(0), c.j.marked(1), c.j.marked(2))
	}
	c.obs[0].fit = false // the good one is gone
	for range 100 {
		c.look(stream{off: true}, slow, worse)
	}
	if n := len(c.j.paths); n != 3 {
		t.Fatal(n)
	}
}

func TestAPathThatIsSlowOnAFastNetworkOnlyIsLeftAlone(t *testing.T) {
	a, b := quick, quick
	a.latency, b.latency = 20*time.Microsecond, 1900*time.Microsecond
	if k := newCourt(2).within(100, a, b); k >= 0 {
		t.Fatal("condemned below the floor")
	}
}

func TestAHiccupCondemnsNobody(t *testing.T) {
	c := newCourt(2)
	for range 50 {
		for _, b := range []stream{slow, slow, quick} {
			if c.look(quick, b) {
				t.Fatal("condemned for two bad looks")
			}
		}
	}
}

func TestAMarginalPathRecoversAfterGoodProbesInARow(t *testing.T) {
	c := newCourt(2)
	c.within(10, quick, slow)
	probe := func(took time.Duration, ok bool) bool {
		c.now += probeEvery
		return c.j.probed(1, c.now, took, time.Millisecond, ok)
	}
	for range goodProbes - 1 {
		if probe(time.Millisecond, true) {
			t.Fatal("recovered too early")
		}
	}
	if probe(10*time.Millisecond, true) || probe(0, false) {
		t.Fatal("recovered by a bad probe")
	}
	n := 1
	for ; !probe(time.Millisecond, true); n++ {
	}
	if n != goodProbes || c.j.marked(1) {
		t.Fatalf("recovered after %d good probes, want %d", n, goodProbes)
	}
}

func TestAPathThatRelapsesMustProveItselfForLonger(t *testing.T) {
	c := newCourt(2)
	want := goodProbes
	for range 6 {
		if c.within(20, quick, slow) < 0 {
			t.Fatal("not condemned again")
		}
		n := 1
		for ; !c.j.probed(1, c.now, time.Millisecond, time.Millisecond, true); n++ {
		}
		if n != want {
			t.Fatalf("%d probes, want %d", n, want)
		}
		want = min(2*want, maxGoodProbes)
	}
	for range 700 {
		c.look(quick, quick)
	}
	c.within(20, quick, slow)
	if c.j.paths[1].need != goodProbes {
		t.Fatal("an old relapse is not forgotten")
	}
}

func TestANewIncarnationStartsCountingAgain(t *testing.T) {
	c := newCourt(2)
	c.look(quick, slow)
	c.look(quick, slow)
	c.obs[1] = observation{fit: true, inc: 99}
	if k := c.within(2, quick, slow); k >= 0 {
		t.Fatal("the bad looks of the lost connection counted")
	}
}
