package pathsel

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestRoundRobinGivesEachPathAnEqualShare(t *testing.T) {
	var s State
	var got [3]int
	for range 100 {
		s.Begin(3)
		for range 3 {
			got[RoundRobin{}.Pick(&s, 4096, 0)]++
		}
	}
	if got != [3]int{100, 100, 100} {
		t.Fatalf("shares %v", got)
	}
}

func TestRoundRobinSkipsAvoidedPaths(t *testing.T) {
	var s State
	s.Begin(3)
	for range 10 {
		if i := (RoundRobin{}).Pick(&s, 1, 0b101); i != 1 {
			t.Fatalf("picked %d", i)
		}
	}
	if i := (RoundRobin{}).Pick(&s, 1, 0b111); i != -1 {
		t.Fatalf("picked %d of none", i)
	}
}

// loadOf is a load, as Load.Packed returns it.
func loadOf(commands, bytes uint64) uint64 { return commands<<bytesBits | bytes }

// amount is what ServiceTime and QueueLength compare, the slow way.
type amount struct{ first, then uint64 }

func (a amount) less(b amount) bool {
	return a.first < b.first || a.first == b.first && a.then < b.then
}

func bytesThenCommands(load uint64) amount {
	return amount{load & (1<<bytesBits - 1), load >> bytesBits}
}

func commandsAlone(load uint64) amount { return amount{first: load >> bytesBits} }

// slowLeast is the obvious twin: the smallest of all, in turn from first on.
func slowLeast(loads []uint64, avoid uint32, first int, of func(uint64) amount) int {
	best := -1
	for k := range loads {
		i := (first + k) % len(loads)
		if avoid&(1<<i) == 0 && (best < 0 || of(loads[i]).less(of(loads[best]))) {
			best = i
		}
	}
	return best
}

func TestTheLeastLoadedPathIsPickedAsTheSlowTwinPicksIt(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		var s State
		n := 1 + rng.IntN(6)
		s.last = rng.IntN(8)
		s.Begin(n)
		for i := range n {
			s.Set(i, loadOf(rng.Uint64N(4), 4096*rng.Uint64N(4)))
		}
		avoid := uint32(rng.IntN(1 << n))
		for sel, of := range map[Selector]func(uint64) amount{ServiceTime{}: bytesThenCommands, QueueLength{}: commandsAlone} {
			state := s
			want := slowLeast(state.load[:n], avoid, state.last, of)
			if i := sel.Pick(&state, 512, avoid); i != want {
				t.Fatalf("%s picked %d, the twin %d; loads %x, from %d on, avoid %b", sel.Name(), i, want, s.load[:n], s.last, avoid)
			}
		}
	}
}

func TestServiceTimeSpreadsEqualCommandsOfOneBatch(t *testing.T) {
	var s State
	var got [4]int
	s.Begin(4)
	for i := range 4 {
		s.Set(i, 0)
	}
	for range 400 {
		got[ServiceTime{}.Pick(&s, 4096, 0)]++
	}
	if got != [4]int{100, 100, 100, 100} {
		t.Fatalf("shares %v", got)
	}
}

func TestLoadCountsCommandsAndBytesInOneWord(t *testing.T) {
	var l Load
	l.Start(4096)
	l.Start(1 << 25)
	l.End(4096)
	if c, b := l.Read(); c != 1 || b != 1<<25 {
		t.Fatalf("%d commands, %d bytes", c, b)
	}
	l.End(1 << 25)
	if c, b := l.Read(); c != 0 || b != 0 {
		t.Fatalf("%d commands, %d bytes after the end", c, b)
	}
	l.Start(512)
	l.Cancel(512)
	if c, b := l.Read(); c != 0 || b != 0 {
		t.Fatalf("%d commands, %d bytes after a start was taken back", c, b)
	}
	if c, b := Unpack(l.Ended()); c != 2 || b != 4096+1<<25 {
		t.Fatalf("%d commands, %d bytes ended", c, b)
	}
}

func TestLoadIsRightAlsoWhenItsSumsOverflow(t *testing.T) {
	var l Load
	const most = 1<<32 - 1 // bytes
	l.started.Store(^uint64(0) - most)
	l.ended.Store(^uint64(0) - most)
	before := l.Ended()
	l.Start(most)
	l.Start(5)
	l.End(5)
	if c, b := l.Read(); c != 1 || b != most {
		t.Fatalf("%d commands, %d bytes", c, b)
	}
	if c, b := Unpack(l.Ended() - before); c != 1 || b != 5 {
		t.Fatalf("%d commands, %d bytes ended", c, b)
	}
}

func TestUnknownSelectorNamesTheChoices(t *testing.T) {
	_, err := ByName("fastest")
	if err == nil {
		t.Fatal("accepted")
	}
	for _, n := range []string{"round-robin", "service-time", "queue-length", "historical-service-time", "io-affinity"} {
		s, serr := ByName(n)
		if serr != nil || s.Name() != n || !strings.Contains(err.Error(), n) {
			t.Errorf("%s: got %v, %v; the error of another name: %v", n, s, serr, err)
		}
	}
	if s, err := ByName(""); err != nil || s.Name() != "service-time" {
		t.Fatalf("the default is %v, %v", s, err)
	}
}

func TestQueueLengthCountsCommandsNotBytes(t *testing.T) {
	var s State
	s.Begin(2)
	s.Set(0, loadOf(2, 8192))
	s.Set(1, loadOf(1, 1<<20))
	if i := (QueueLength{}).Pick(&s, 4096, 0); i != 1 {
		t.Fatalf("picked %d", i)
	}
	if i := (ServiceTime{}).Pick(&s, 4096, 0); i != 0 {
		t.Fatalf("service-time picked %d", i)
	}
}

func TestIOAffinityKeepsALaneOnItsPath(t *testing.T) {
	for lane := range 6 {
		var s State
		s.Home(lane)
		s.Begin(3)
		for range 5 {
			if i := (IOAffinity{}).Pick(&s, 4096, 0); i != lane%3 {
				t.Fatalf("lane %d on path %d", lane, i)
			}
		}
		if i := (IOAffinity{}).Pick(&s, 4096, 1<<(lane%3)); i != (lane+1)%3 {
			t.Fatalf("lane %d went to path %d while its own was avoided", lane, i)
		}
	}
}

func TestEverySelectorKeepsOffAvoidedPaths(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		n := 1 + rng.IntN(6)
		avoid := uint32(rng.IntN(1 << n))
		for _, sel := range all {
			var s State
			s.Home(rng.IntN(9))
			s.Begin(n)
			s.SetNow(rng.Int64N(1000))
			for i := range n {
				s.Set(i, loadOf(rng.Uint64N(4), rng.Uint64N(9)))
				s.service[i], s.answered[i] = rng.Int64N(50), rng.Int64N(1000)
			}
			i := sel.Pick(&s, 512, avoid)
			if none := avoid == 1<<n-1; none != (i < 0) || i >= n || i >= 0 && avoid&(1<<i) != 0 {
				t.Fatalf("%s picked %d of %d, avoid %b", sel.Name(), i, n, avoid)
			}
		}
	}
}
