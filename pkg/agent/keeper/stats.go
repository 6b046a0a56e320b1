package keeper

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
)

// Stats are figures for metrics.
type Stats struct {
	// Volumes that are published, Publications of them, and those Revoking.
	Volumes, Publications, Revoking int
	Fenced                          int // nodes
	Unreadable                      int // files of the journal
	Sessions                        int // nodes at portals
	Orphans                         map[OrphanKind]int
	// Repairs and Reconciles since start; Failing are the volumes that were not as
	// they should be in the last pass, which took LastReconcile.
	Repairs, Reconciles int64
	Failing             int
	LastReconcile       time.Duration
	Watchers            int
	EventsLost          int64
}

// stats are counted as they happen.
type stats struct {
	repairs, reconciles, failing, lastReconcile, sessions atomic.Int64
}

func (s *stats) reconciled(took time.Duration, failed int) {
	s.reconciles.Add(1)
	s.failing.Store(int64(failed))
	s.lastReconcile.Store(int64(took))
}

// Stats are the figures of now.
func (k *Keeper) Stats() Stats {
	s := Stats{Repairs: k.stats.repairs.Load(), Reconciles: k.stats.reconciles.Load(), Failing: int(k.stats.failing.Load()),
		LastReconcile: time.Duration(k.stats.lastReconcile.Load()), Sessions: int(k.stats.sessions.Load()), Orphans: map[OrphanKind]int{}}
	k.journal.count(&s)
	k.events.count(&s)
	k.found.mu.Lock()
	defer k.found.mu.Unlock()
	for kind, n := range k.found.count {
		s.Orphans[kind] = n
	}
	return s
}

func (j *journal) count(s *Stats) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s.Volumes, s.Fenced = len(j.records), len(j.fences)
	s.Unreadable = len(j.strays) + len(j.damaged) + len(j.damagedFences)
	for _, r := range j.records {
		s.Publications += len(r.pubs)
		s.Revoking += len(r.pubs) - len(r.live().pubs)
	}
}

func (e *events) count(s *Stats) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.Watchers, s.EventsLost = len(e.watchers), e.lost
}

// Usage is the space of each pool; of those that answer, with an error.
func (k *Keeper) Usage(ctx context.Context) (map[string]store.Usage, error) {
	out := map[string]store.Usage{}
	var errs []error
	for _, p := range k.order {
		u, err := p.store.Usage(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("pool %s: %w", p.name, err))
			continue
		}
		out[p.name] = u
	}
	return out, errors.Join(errs...)
}
