package memory

import (
	"context"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// watcher is one call of Watch. The storage's lock guards its fields.
type watcher struct {
	tenant string
	queue  []backend.Event
	lost   bool
	wake   chan struct{} // holds one
}

// Watch calls f for each event.
func (v *view) Watch(ctx context.Context, f func(backend.Event)) error {
	w := &watcher{tenant: v.tenant, wake: make(chan struct{}, 1)}
	v.s.watch(w, true)
	defer v.s.watch(w, false)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wake:
		}
		for _, e := range v.s.take(w) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			f(e)
		}
	}
}

// watch adds or removes a watcher.
func (s *Storage) watch(w *watcher, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on {
		s.watchers[w] = true
	} else {
		delete(s.watchers, w)
	}
}

// take empties a watcher's queue.
func (s *Storage) take(w *watcher) []backend.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := w.queue
	if w.lost {
		lost := backend.Event{Time: s.cfg.Now(), Kind: backend.EventsLost, Warning: true, Message: "events were lost"}
		out = append([]backend.Event{lost}, out...)
	}
	w.queue, w.lost = nil, false
	return out
}

// tell queues an event for a tenant's watchers. The lock is held.
func (s *Storage) tell(tenant string, e backend.Event) {
	e.Time = s.cfg.Now()
	for w := range s.watchers {
		if w.tenant != tenant {
			continue
		}
		w.queue = append(w.queue, e)
		if len(w.queue) > maxEvents {
			w.queue, w.lost = w.queue[1:], true
		}
		select {
		case w.wake <- struct{}{}:
		default: // it is awake
		}
	}
}
