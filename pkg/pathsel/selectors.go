package pathsel

// RoundRobin gives each path one command in turn.
type RoundRobin struct{}

// Name implements Selector.
func (RoundRobin) Name() string { return "round-robin" }

// Needs implements Selector.
func (RoundRobin) Needs() Needs { return NeedsNothing }

// Pick implements Selector.
func (RoundRobin) Pick(s *State, _ uint32, avoid uint32) int {
	for k := 0; k < s.n; k++ {
		i := s.last
		if s.last++; s.last >= s.n {
			s.last = 0
		}
		if avoid&(1<<i) == 0 {
			return i
		}
	}
	return -1
}

// ServiceTime picks the path with the fewest bytes in flight; among equals the
// one with fewer commands, then the next in turn.
type ServiceTime struct{}

// Name implements Selector.
func (ServiceTime) Name() string { return "service-time" }

// Needs implements Selector.
func (ServiceTime) Needs() Needs { return NeedsLoad }

// Pick implements Selector.
func (ServiceTime) Pick(s *State, n uint32, avoid uint32) int {
	return s.least(avoid, n, 64-bytesBits, ^uint64(0)) // bytes above, commands below
}

// QueueLength picks the path with the fewest commands in flight, among equals
// the next in turn.
type QueueLength struct{}

// Name implements Selector.
func (QueueLength) Name() string { return "queue-length" }

// Needs implements Selector.
func (QueueLength) Needs() Needs { return NeedsLoad }

// Pick implements Selector.
func (QueueLength) Pick(s *State, n uint32, avoid uint32) int {
	return s.least(avoid, n, 0, ^uint64(1<<bytesBits-1))
}

// HistoricalServiceTime picks the path that will have answered first, by what
// its answers took so far: the least (1 + commands in flight) x service time.
//
// A path without an answer for as long as all paths together take for one is
// stale. If it is idle it gets one command, to learn whether it became better;
// if it is not, it gets no more in flight than the other paths have.
type HistoricalServiceTime struct{}

// Name implements Selector.
func (HistoricalServiceTime) Name() string { return "historical-service-time" }

// Needs implements Selector.
func (HistoricalServiceTime) Needs() Needs { return NeedsHistory }

// Pick implements Selector.
func (HistoricalServiceTime) Pick(s *State, n uint32, avoid uint32) int {
	return s.pick(avoid, n, soonerDone)
}

func soonerDone(s *State, a, b int) bool {
	staleA, staleB := s.stale(a), s.stale(b)
	probeA, probeB := staleA && s.commands(a) == 0, staleB && s.commands(b) == 0
	switch {
	case probeA != probeB:
		return probeA
	case staleA != staleB && s.commands(a) != s.commands(b):
		if staleA && s.commands(a) > s.commands(b) {
			return false
		}
		if staleB && s.commands(b) > s.commands(a) {
			return true
		}
	}
	costA, costB := s.cost(a), s.cost(b)
	return costA < costB || costA == costB && s.commands(a) < s.commands(b)
}

// stale reports that path i has not answered for longer than all paths
// together take for an answer, or never.
func (s *State) stale(i int) bool {
	return s.service[i] == 0 || s.now-s.answered[i] > int64(s.n)*s.service[i]
}

// cost is when path i would answer one more command, ns from now. One that was
// never measured is taken to be free: then the number of commands decides.
func (s *State) cost(i int) int64 {
	return (1 + int64(min(s.commands(i), 1<<20))) * min(s.service[i], 1<<40)
}

// IOAffinity keeps each lane on one path, lanes spread evenly over the paths;
// the next one takes over while that path is full or avoided. With one lane
// all traffic is on one path.
type IOAffinity struct{}

// Name implements Selector.
func (IOAffinity) Name() string { return "io-affinity" }

// Needs implements Selector.
func (IOAffinity) Needs() Needs { return NeedsNothing }

// Pick implements Selector.
func (IOAffinity) Pick(s *State, _ uint32, avoid uint32) int {
	for k := 0; k < s.n; k++ {
		if i := (s.home + k) % s.n; avoid&(1<<i) == 0 {
			return i
		}
	}
	return -1
}
