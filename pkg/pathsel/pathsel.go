// Package pathsel picks one path out of a group.
//
// A Selector is pure: it sees an immutable View of the group's loads and the
// lane's own State, and reads no clock. Semantics follow the kernel's dm path
// selectors of the same names.
package pathsel

import (
	"fmt"
	"math/bits"
	"strings"
	"sync/atomic"
)

// Load is what one lane has in flight on one path, on a cache line of its own.
//
// started is added to by the lane's runner, ended by whoever answers its
// commands. Both only grow, packed as words of sums are (see Packed), so what is
// in flight is their difference whatever overflowed. A selector that reads a
// stale one picks a slightly busier path once.
type Load struct {
	started atomic.Uint64
	ended   atomic.Uint64
	_       [48]byte
}

const bytesBits = 40

// packed is a command of n bytes in a word: commands in the upper 24 bits,
// bytes in the lower 40.
func packed(n uint32) uint64 { return 1<<bytesBits | uint64(n) }

// Start counts a command of n bytes in.
func (l *Load) Start(n uint32) { l.started.Add(packed(n)) }

// End counts it out.
func (l *Load) End(n uint32) { l.ended.Add(packed(n)) }

// Cancel takes a Start back: the command did not go out.
func (l *Load) Cancel(n uint32) { l.started.Add(-packed(n)) }

// Packed returns the commands and bytes in flight in one word, as State.Set
// takes it. Sums of such words are the words of the sums.
func (l *Load) Packed() uint64 {
	e := l.ended.Load() // first: what ends in between was started before
	return l.started.Load() - e
}

// Ended returns what has ended so far, packed; only differences mean something,
// those below 1<<24 commands and 1<<40 bytes.
func (l *Load) Ended() uint64 { return l.ended.Load() }

// Read returns the commands and bytes in flight.
func (l *Load) Read() (commands, bytes uint64) { return Unpack(l.Packed()) }

// Unpack splits a packed word into commands and bytes.
func Unpack(packed uint64) (commands, bytes uint64) {
	return packed >> bytesBits, packed & (1<<bytesBits - 1)
}

// State is a lane's memory between picks. Only the lane's runner touches it.
type State struct {
	home int // the lane's number
	last int
	n    int
	now  int64 // ns
	// picks counts, see Picks.
	picks uint64
	// The loads as of Begin plus what the batch added since, as Load packs them.
	load [MaxPaths]uint64
	// The histories as of Begin, ns.
	service  [MaxPaths]int64
	answered [MaxPaths]int64
}

// Home tells the lane's number, once.
func (s *State) Home(lane int) { s.home = lane }

// Begin starts a batch over n paths and forgets the loads of the last one.
// What the selector needs is filled in by Set, SetHistory and SetNow.
func (s *State) Begin(n int) {
	s.n = min(n, MaxPaths)
	if s.last >= s.n {
		s.last = 0
	}
}

// Set tells the load of path i as the batch begins: Load.Packed, or a sum.
func (s *State) Set(i int, load uint64) { s.load[i] = load }

// Idle reports that nothing is in flight on path i.
func (s *State) Idle(i int) bool { return s.commands(i) == 0 }

func (s *State) commands(i int) uint64 { return s.load[i] >> bytesBits }

// Picks counts what the selectors that need loads have picked so far.
func (s *State) Picks() uint64 { return s.picks }

// SetHistory tells what path i took so far.
func (s *State) SetHistory(i int, h *History) { s.service[i], s.answered[i] = h.Read() }

// SetNow tells the time of the batch, ns.
func (s *State) SetNow(now int64) { s.now = now }

// Needs is what a selector wants to be told before a batch.
type Needs uint8

// What a selector may need.
const (
	NeedsNothing Needs = iota
	NeedsLoad          // State.Set for each path
	NeedsHistory       // State.Set, SetHistory for each path and SetNow
)

// Selector picks paths.
type Selector interface {
	// Name is the StorageClass value.
	Name() string
	Needs() Needs
	// Pick returns the index of the path for a command of n bytes, among the
	// paths whose bit is clear in avoid; -1 when there is none.
	Pick(s *State, n uint32, avoid uint32) int
}

// all are the selectors, the default first.
var all = []Selector{ServiceTime{}, RoundRobin{}, QueueLength{}, HistoricalServiceTime{}, IOAffinity{}}

// ByName returns the selector of a pathSelector parameter; "" is the default.
func ByName(name string) (Selector, error) {
	names := make([]string, 0, len(all))
	for _, s := range all {
		if s.Name() == name || name == "" {
			return s, nil
		}
		names = append(names, s.Name())
	}
	return nil, fmt.Errorf("path selector %q is not known: use one of %s", name, strings.Join(names, ", "))
}

// pick returns the path for which better says so against every other, in turn
// from where the last pick ended: equals alternate.
func (s *State) pick(avoid uint32, n uint32, better func(s *State, a, b int) bool) int {
	best := -1
	for k := 0; k < s.n; k++ {
		i := s.last + k
		if i >= s.n {
			i -= s.n
		}
		if avoid&(1<<i) == 0 && (best < 0 || better(s, i, best)) {
			best = i
		}
	}
	if best >= 0 {
		s.took(best, n)
	}
	return best
}

// least is pick for the least load, rotated and masked: the same without a call
// per path.
func (s *State) least(avoid uint32, n uint32, rotate int, mask uint64) int {
	if s.n == 2 && avoid == 0 {
		return s.lesser(n, rotate, mask)
	}
	best, least := -1, ^uint64(0)
	for k, i := 0, s.last; k < s.n; k, i = k+1, i+1 {
		if i >= s.n {
			i = 0
		}
		if avoid&(1<<i) != 0 {
			continue
		}
		if v := bits.RotateLeft64(s.load[i%MaxPaths], rotate) & mask; v < least {
			best, least = i, v
		}
	}
	if best >= 0 {
		s.took(best, n)
	}
	return best
}

// lesser is least for two paths, none avoided, as most volumes have them:
// the loop was 4% of what a request costs over paths in memory.
func (s *State) lesser(n uint32, rotate int, mask uint64) int {
	i := s.last & 1
	if bits.RotateLeft64(s.load[i^1], rotate)&mask < bits.RotateLeft64(s.load[i], rotate)&mask {
		i ^= 1
	}
	s.load[i] += packed(n)
	s.picks++
	s.last = i ^ 1
	return i
}

// took counts a pick into the batch's view of the loads.
func (s *State) took(i int, n uint32) {
	s.load[i] += packed(n)
	s.picks++
	if s.last = i + 1; s.last >= s.n {
		s.last = 0
	}
}
