package keeper

import (
	"context"
	"fmt"
	"sync"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// locks are one lock per object, node and name. A verb that comes while another
// verb works on the same is told to try again; the reconciler makes room for it.
type locks struct {
	mu   sync.Mutex
	held map[string]*lock
	// touched are the keys that verbs held since note, nil: nobody asks.
	touched map[string]bool
}

type lock struct {
	yield func() // of the reconciler's: asks it to stop; nil: a verb's
	done  chan struct{}
}

func newLocks() *locks { return &locks{held: map[string]*lock{}} }

// verb takes all keys, or none: ErrBusy if another verb has one.
func (l *locks) verb(ctx context.Context, what string, keys ...string) (unlock func(), err error) {
	return l.take(ctx, what, false, keys)
}

// wait takes a key when the verb that has it is over, or ctx.
func (l *locks) wait(ctx context.Context, what, key string) (unlock func(), err error) {
	return l.take(ctx, what, true, []string{key})
}

func (l *locks) take(ctx context.Context, what string, patient bool, keys []string) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for {
		other, unlock := l.try(keys)
		if other == nil {
			return unlock, nil
		}
		if other.yield == nil && !patient {
			return nil, fmt.Errorf("%w: %s: another call works on it: try again", backend.ErrBusy, what)
		}
		if other.yield != nil {
			other.yield()
		}
		select {
		case <-other.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %s: %w", backend.ErrBusy, what, ctx.Err())
		}
	}
}

// try takes all keys, or returns who has one.
func (l *locks) try(keys []string) (other *lock, unlock func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range keys {
		if h := l.held[k]; h != nil {
			return h, nil
		}
	}
	mine := &lock{done: make(chan struct{})}
	for _, k := range keys {
		l.held[k] = mine
		if l.touched != nil {
			l.touched[k] = true
		}
	}
	return nil, func() { l.release(mine, keys) }
}

func (l *locks) release(mine *lock, keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range keys {
		delete(l.held, k)
	}
	close(mine.done)
}

// background takes a key if it is free; the context ends when a verb wants it.
func (l *locks) background(ctx context.Context, key string) (mine context.Context, unlock func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[key] != nil {
		return nil, nil, false
	}
	mine, cancel := context.WithCancel(ctx)
	h := &lock{yield: cancel, done: make(chan struct{})}
	l.held[key] = h
	return mine, func() { cancel(); l.release(h, []string{key}) }, true
}

// note begins to note which keys verbs take.
func (l *locks) note() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.touched = make(map[string]bool, len(l.held))
	for k := range l.held {
		l.touched[k] = true
	}
}

// noted reports whether a verb had the key since note.
func (l *locks) noted(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.touched[key]
}
