package serve

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// roster is who the targets of a Hub are. Its lock is the last of all: the
// directory asks with its own held, while Listen takes the Hub's before that.
type roster struct {
	mu     sync.Mutex
	byName map[string]entry
	added  uint64
}

// entry is a target and its place in the order of SendTargets.
type entry struct {
	s     *Server
	place uint64
}

func (r *roster) add(s *Server) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.byName) >= maxTargets {
		return fmt.Errorf("target %s: more than %d targets", s.Name(), maxTargets)
	}
	if _, taken := r.byName[s.Name()]; taken {
		return fmt.Errorf("target %s is there already", s.Name())
	}
	r.added++
	r.byName[s.Name()] = entry{s, r.added}
	return nil
}

// drop forgets s; false if it is not known.
func (r *roster) drop(s *Server) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.byName[s.Name()].s == s
	if known {
		delete(r.byName, s.Name())
	}
	return known
}

func (r *roster) has(s *Server) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byName[s.Name()].s == s
}

// all are the targets, in the order they came.
func (r *roster) all() (out []*Server) {
	r.mu.Lock()
	entries := slices.Collect(maps.Values(r.byName))
	r.mu.Unlock()
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.place, b.place) })
	for _, e := range entries {
		out = append(out, e.s)
	}
	return out
}
