package contract

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/backend/memory"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
)

// Interrupt makes call in another goroutine, and stops for good whoever comes to
// the fault point the nth time (from 1): what a kill of this process there would
// do to the call. It returns when that happened, or, with reached false, when
// call did. Stopped goroutines hold what they hold until the test ends: the
// server that they are of must not be used any more.
func Interrupt(t testing.TB, point string, nth int, call func()) (reached bool) {
	var mu sync.Mutex
	at, seen, stopped, done := make(chan struct{}), 0, make(chan struct{}), make(chan struct{})
	t.Cleanup(func() {
		close(stopped)
		select { // what it put off must not happen to directories that are going
		case <-done:
		case <-time.After(stoppedTimeout):
		}
	})
	restore := faultpoint.Set(func(name string) {
		mu.Lock()
		hit := name == point
		if hit {
			seen++
		}
		dead := seen >= nth
		if hit && seen == nth {
			close(at)
		}
		mu.Unlock()
		if dead { // a process that was killed does nothing more
			<-stopped
			runtime.Goexit()
		}
	})
	defer restore()
	go func() {
		defer close(done)
		call()
	}()
	select {
	case <-at:
		return true
	case <-done:
		return false
	}
}

// story is a verb in a state that it changes.
type story struct {
	name   string
	before func(r *trial, n string) // makes the state
	verb   func(ctx context.Context, r *trial, b backend.Backend, n string) error
	copies bool // it needs a pool with snapshots
}

// volumeID and snapshotID are what a name becomes.
func (r *trial) volumeID(name string) backend.ID {
	return backend.ID{Pool: r.pool.Name, Object: backend.ObjectName(backend.VolumeObject, r.s.Tenant, name)}
}

func (r *trial) snapshotID(name string) backend.ID {
	return backend.ID{Pool: r.pool.Name, Object: backend.ObjectName(backend.SnapshotObject, r.s.Tenant, name)}
}

// stories are all verbs that change something.
var stories = []story{
	{"CreateVolume", nil, func(ctx context.Context, r *trial, b backend.Backend, n string) error {
		_, err := b.CreateVolume(ctx, r.asks(n, 2))
		return err
	}, false},
	{"CreateVolume of a snapshot", func(r *trial, n string) { r.create(r.asks(n, 1)); r.snapshot(n, r.volumeID(n)) }, func(ctx context.Context, r *trial, b backend.Backend, n string) error {
		ask := r.asks(n+"-copy", 2)
		ask.Source.Snapshot = r.snapshotID(n)
		_, err := b.CreateVolume(ctx, ask)
		return err
	}, true},
	{"CreateSnapshot", func(r *trial, n string) { r.create(r.asks(n, 1)) }, func(ctx context.Context, r *trial, b backend.Backend, n string) error {
		_, err := b.CreateSnapshot(ctx, backend.CreateSnapshot{Name: n, Of: r.volumeID(n)})
		return err
	}, true},
	{"DeleteSnapshot", func(r *trial, n string) { r.create(r.asks(n, 1)); r.snapshot(n, r.volumeID(n)) }, func(ctx context.Context, r *trial, b backend.Backend, n string) error {
		return b.DeleteSnapshot(ctx, r.snapshotID(n))
	}, true},
	{"DeleteVolume", func(r *trial, n string) { r.create(r.asks(n, 1)) }, func(ctx context.Context, r *trial, b backend.Backend, n string) error {
		return b.DeleteVolume(ctx, r.volumeID(n))
	}, false},
	{"ExpandVolume", func(r *trial, n string) { r.publish(r.to(r.create(r.asks(n, 1)).ID, "node")) }, func(ctx context.Context, r *trial, b backend.Backend, n string) error {
		_, err := b.ExpandVolume(ctx, r.volumeID(n), backend.Size{Required: r.size(2)})
		return err
	}, false},
	{"TuneVolume", func(r *trial, n string) { r.create(r.asks(n, 1)) }, func(ctx context.Context, r *trial, b backend.Backend, n string) error {
		_, err := b.TuneVolume(ctx, r.volumeID(n), map[string]string{"polling": "off"})
		return err
	}, false},
	{"Publish", func(r *trial, n string) { r.create(r.asks(n, 1)) }, func(ctx context.Context, r *trial, b backend.Backend, n string) error {
		_, err := b.Publish(ctx, r.to(r.volumeID(n), "node"))
		return err
	}, false},
	{"Publish to a second node", func(r *trial, n string) { r.publish(r.shared(r.create(r.asks(n, 1)).ID, "other")) }, func(ctx context.Context, r *trial, b backend.Backend, n string) error {
		_, err := b.Publish(ctx, r.shared(r.volumeID(n), "node"))
		return err
	}, false},
	{"Unpublish", func(r *trial, n string) { r.publish(r.to(r.create(r.asks(n, 1)).ID, "node")) }, func(ctx context.Context, r *trial, b backend.Backend, n string) error {
		return b.Unpublish(ctx, r.volumeID(n), "node")
	}, false},
	{"Unpublish of one of two", func(r *trial, n string) {
		r.publish(r.shared(r.create(r.asks(n, 1)).ID, "node"))
		r.publish(r.shared(r.volumeID(n), "other"))
	}, func(ctx context.Context, r *trial, b backend.Backend, n string) error {
		return b.Unpublish(ctx, r.volumeID(n), "node")
	}, false},
	{"Fence", func(r *trial, n string) { r.publish(r.to(r.create(r.asks(n, 1)).ID, "node")) }, func(ctx context.Context, r *trial, b backend.Backend, n string) error {
		return b.Fence(ctx, "node")
	}, false},
	{"Unfence", func(r *trial, n string) { r.ok(r.b.Fence(r.ctx, "node"), "fencing") }, func(ctx context.Context, r *trial, b backend.Backend, n string) error {
		return b.Unfence(ctx, "node")
	}, false},
}

// begin makes the state that a story begins in.
func (s story) begin(r *trial, n string) {
	if s.before != nil {
		s.before(r, n)
	}
}

// ends is what a story ends in: what the model says.
func (s story) ends(r *trial, n string) []string {
	m := *r
	m.b = memory.New(memory.Config{Pools: []backend.Pool{r.pool}}).For(r.s.Tenant)
	s.begin(&m, n)
	m.ok(s.verb(r.ctx, &m, m.b, n), "the model's "+s.name)
	return m.picture()
}

// steps are the fault points that a story's verb comes to, each with its count.
func (s story) steps(r *trial, n string) []string {
	if r.s.Points != nil {
		return r.s.Points
	}
	s.begin(r, n)
	var err error
	all := faultpoint.Trace(func() { err = s.verb(r.ctx, r, r.b, n) })
	r.ok(err, s.name)
	r.clear()
	return all
}

// crashes tells each story once for each of its steps: it is begun, cut short
// there, and then gone on with.
func (r *trial) crashes(then func(s story, n string)) {
	reached := 0
	for _, s := range stories {
		if s.copies && !r.pool.Snapshots {
			continue
		}
		for i, step := range s.steps(r, "rehearsal") {
			n := fmt.Sprintf("vol %d", i)
			s.begin(r, n)
			point, count, _ := strings.Cut(step, ":")
			nth, err := strconv.Atoi(count)
			if err != nil {
				nth = 1
			}
			next, hit := r.s.Crash(r.TB, point, nth, func(b backend.Backend) { _ = s.verb(r.ctx, r, patient{b}, n) })
			r.use(next)
			if hit {
				reached++
			}
			then(s, n)
			r.clear()
			r.nothingIsLeft()
			if r.Failed() {
				r.Fatalf("%s, cut short at %s", s.name, step)
			}
		}
	}
	if reached == 0 {
		r.Error("no fault point was reached")
	}
	r.Logf("%d crashes", reached)
}

func anyCallIsFinishedAfterACrash(r *trial) {
	r.crashes(func(s story, n string) {
		r.ok(s.verb(r.ctx, r, r.b, n), s.name+", again")
		if got, want := r.picture(), s.ends(r, n); !slices.Equal(got, want) {
			r.Errorf("%s: got %v, want %v", s.name, got, want)
		}
	})
}

func anyCallIsUndoneAfterACrash(r *trial) {
	r.crashes(func(_ story, n string) {
		r.unpublish(r.volumeID(n), "")
		for _, name := range []string{n, n + "-copy"} {
			r.ok(r.b.DeleteVolume(r.ctx, r.volumeID(name)), "deleting the volume")
			r.ok(r.b.DeleteSnapshot(r.ctx, r.snapshotID(name)), "deleting the snapshot")
		}
	})
}
