package keeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// events hands events to watchers. Nobody who tells one waits for anybody.
type events struct {
	mu       sync.Mutex
	watchers map[*watcher]bool
	closed   bool
	lost     int64 // of all watchers
}

// watcher is one call of Watch; events' lock guards its fields.
type watcher struct {
	tenant string
	queue  []backend.Event
	lost   int
	wake   chan struct{} // holds one
}

func newEvents() *events { return &events{watchers: map[*watcher]bool{}} }

// errClosed: the keeper is closed.
var errClosed = fmt.Errorf("%w: the agent is stopping", backend.ErrUnavailable)

// tell queues an event for the watchers of a tenant, of all for "".
func (e *events) tell(tenant string, ev backend.Event) {
	ev.Time = time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for w := range e.watchers {
		if tenant != "" && w.tenant != tenant {
			continue
		}
		if len(w.queue) >= maxEvents {
			w.queue = w.queue[1:]
			w.lost++
			e.lost++
		}
		w.queue = append(w.queue, ev)
		select {
		case w.wake <- struct{}{}:
		default: // it is awake
		}
	}
}

// add begins to watch.
func (e *events) add(tenant string) (*watcher, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return nil, errClosed
	case len(e.watchers) >= maxWatchers:
		return nil, fmt.Errorf("%w: %d watchers, the most there may be", backend.ErrNoSpace, maxWatchers)
	}
	w := &watcher{tenant: tenant, wake: make(chan struct{}, 1)}
	e.watchers[w] = true
	return w, nil
}

func (e *events) remove(w *watcher) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.watchers, w)
}

// take empties a watcher's queue; what was lost was older.
func (e *events) take(w *watcher) (out []backend.Event, closed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w.lost > 0 {
		out = append(out, backend.Event{Time: time.Now(), Kind: backend.EventsLost, Warning: true,
			Message: fmt.Sprintf("%d events were lost: they came faster than they were taken", w.lost)})
	}
	out = append(out, w.queue...)
	w.queue, w.lost = nil, 0
	return out, e.closed
}

// close ends all watching.
func (e *events) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for w := range e.watchers {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// Watch implements backend.Backend.
func (v *view) Watch(ctx context.Context, f func(backend.Event)) error {
	w, err := v.k.events.add(v.tenant)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	defer v.k.events.remove(w)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wake:
		}
		some, closed := v.k.events.take(w)
		for _, ev := range some {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			f(ev)
		}
		if closed {
			return errClosed
		}
	}
}
