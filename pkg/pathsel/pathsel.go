// Package pathsel picks one path out of a group.
//
// A Selector is pure: it sees an immutable View of the group's loads and the
// lane's own State, and reads no clock. Semantics follow the kernel's dm path
// selectors of the same names.
package pathsel

import (
	"fmt"
	"sync/atomic"
)

// MaxPaths is the most paths one group may hold.
const MaxPaths = 32

// Load is what one lane has in flight on one path, on a cache line of its own.
// The lane's runner adds, the path's reader subtracts; a selector that reads a
// stale sum picks a slightly busier path once.
type Load struct {
	packed atomic.Uint64 // requests in the upper 24 bits, bytes in the lower 40
	_      [56]byte
}

const bytesBits = 40

// Start counts a command of n bytes in.
func (l *Load) Start(n uint32) { l.packed.Add(1<<bytesBits | uint64(n)) }

// End counts it out.
func (l *Load) End(n uint32) { l.packed.Add(^(1<<bytesBits | uint64(n)) + 1) }

// Read returns the commands and bytes in flight.
func (l *Load) Read() (commands, bytes uint64) {
	v := l.packed.Load()
	return v >> bytesBits, v & (1<<bytesBits - 1)
}

// State is a lane's memory between picks. Only the lane's runner touches it.
type State struct {
	last int
	n    int
	// queued holds the loads as of Begin plus what the batch added since.
	commands [MaxPaths]uint64
	bytes    [MaxPaths]uint64
}

// Begin starts a batch over n paths and forgets the loads of the last one.
// loads, when the selector needs them, are filled in by Set.
func (s *State) Begin(n int) {
	s.n = min(n, MaxPaths)
	if s.last >= s.n {
		s.last = 0
	}
}

// Set tells the load of path i as the batch begins.
func (s *State) Set(i int, commands, bytes uint64) { s.commands[i], s.bytes[i] = commands, bytes }

// Selector picks paths.
type Selector interface {
	// Name is the StorageClass value.
	Name() string
	// NeedsLoad reports whether State.Set must be called for each path.
	NeedsLoad() bool
	// Pick returns the index of the path for a command of n bytes, among the
	// paths whose bit is clear in avoid; -1 when there is none.
	Pick(s *State, n uint32, avoid uint32) int
}

// ByName returns the selector of a pathSelector parameter.
func ByName(name string) (Selector, error) {
	switch name {
	case "", "service-time":
		return ServiceTime{}, nil
	case "round-robin":
		return RoundRobin{}, nil
	}
	return nil, fmt.Errorf("path selector %q is not known: use service-time or round-robin", name)
}

// RoundRobin gives each path one command in turn.
type RoundRobin struct{}

// Name implements Selector.
func (RoundRobin) Name() string { return "round-robin" }

// NeedsLoad implements Selector.
func (RoundRobin) NeedsLoad() bool { return false }

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

// ServiceTime picks the path with the fewest bytes in flight, the new command
// included; among equals the one with fewer commands, then the next in turn.
type ServiceTime struct{}

// Name implements Selector.
func (ServiceTime) Name() string { return "service-time" }

// NeedsLoad implements Selector.
func (ServiceTime) NeedsLoad() bool { return true }

// Pick implements Selector.
func (ServiceTime) Pick(s *State, n uint32, avoid uint32) int {
	best := -1
	for k := 0; k < s.n; k++ {
		i := s.last + k
		if i >= s.n {
			i -= s.n
		}
		if avoid&(1<<i) != 0 {
			continue
		}
		if best < 0 || s.bytes[i] < s.bytes[best] ||
			s.bytes[i] == s.bytes[best] && s.commands[i] < s.commands[best] {
			best = i
		}
	}
	if best < 0 {
		return -1
	}
	s.bytes[best] += uint64(n)
	s.commands[best]++
	if s.last = best + 1; s.last >= s.n {
		s.last = 0
	}
	return best
}
