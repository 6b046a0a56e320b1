package contract

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/backend/memory"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
)

// kinds are the errors that the model and a backend must agree on.
var kinds = []error{backend.ErrNotFound, backend.ErrConflict, backend.ErrInUse, backend.ErrNoSpace, backend.ErrRange, backend.ErrBusy,
	backend.ErrInvalid, backend.ErrToken, backend.ErrUnsupported, backend.ErrFenced, backend.ErrDenied, backend.ErrUnavailable, backend.ErrNoPool}

// walk is a random sequence of calls, and what the model says of them.
type walk struct {
	*trial
	rnd   *rand.Rand
	model backend.Backend
	log   []string
}

func (r *trial) walk() *walk {
	model := memory.New(memory.Config{Pools: []backend.Pool{r.pool}}).For(r.s.Tenant)
	return &walk{trial: r, rnd: rand.New(rand.NewPCG(7, 11)), model: model}
}

// calls is the length of the walk.
func (w *walk) calls() int {
	if w.s.Calls == 0 {
		return defaultCalls
	}
	return w.s.Calls
}

func randomCallsDoWhatTheModelDoes(r *trial) {
	w := r.walk()
	for i := range w.calls() {
		name, call := w.next()
		w.step(name, call)
		if i%restartEvery == restartEvery-1 {
			w.compare(w.model, i)
		}
	}
	w.compare(w.model, w.calls())
	r.clear()
	r.nothingIsLeft()
}

// randomCallsWithCrashesDoWhatTheModelDoes: every second call is cut short at a
// fault point that an earlier one of its kind came to, and made again. It is cut
// short in other states than the stories of AnyCallIsFinishedAfterACrash have.
func randomCallsWithCrashesDoWhatTheModelDoes(r *trial) {
	w, crashes := r.walk(), 0
	points := map[string][]string{} // by the kind of call
	for i := range w.calls() / crashShare {
		name, call := w.next()
		kind, _, _ := strings.Cut(name, " ")
		known := append(points[kind], pointNames(r.s.Points)...)
		if w.rnd.IntN(2) == 0 && len(known) > 0 {
			point := pick(w, known...)
			next, hit := w.s.Crash(w.TB, point, 1, func(b backend.Backend) { _, _ = call(patient{b}) })
			w.use(next)
			if hit {
				crashes++
			}
			name += fmt.Sprintf(", after a crash at %s (%t)", point, hit)
		}
		points[kind] = merge(points[kind], pointNames(faultpoint.Trace(func() { w.step(name, call) })))
		if i%restartEvery == restartEvery-1 {
			w.compare(w.model, i)
		}
	}
	if crashes == 0 {
		r.Error("no fault point was reached")
	}
	r.Logf("%d crashes", crashes)
	w.compare(w.model, w.calls())
	r.clear()
	r.nothingIsLeft()
}

// pointNames are names without counts.
func pointNames(points []string) (names []string) {
	for _, p := range points {
		name, _, _ := strings.Cut(p, ":")
		names = append(names, name)
	}
	return names
}

// merge adds the names of more that are not in some.
func merge(some, more []string) []string {
	for _, name := range more {
		if !slices.Contains(some, name) {
			some = append(some, name)
		}
	}
	return some
}

// step makes a call, and wants what the model does.
func (w *walk) step(name string, call func(backend.Backend) (string, error)) {
	w.Helper()
	w.log = append(w.log, name)
	got, err := call(w.b)
	want, wantErr := call(w.model)
	if (err == nil) != (wantErr == nil) || !agrees(err, wantErr) || got != want {
		w.Fatalf("call %d, %s:\ngot  %s, %v\nwant %s, %v\nafter %v", len(w.log), name, got, err, want, wantErr, w.log[max(0, len(w.log)-12):])
	}
}

// agrees: what a backend says is among what the model found wrong.
func agrees(err, model error) bool {
	if err == nil {
		return true
	}
	for _, k := range kinds {
		if errors.Is(err, k) {
			return errors.Is(model, k)
		}
	}
	return false
}

// compare looks at everything, and restarts what can be restarted.
func (w *walk) compare(model backend.Backend, at int) {
	w.Helper()
	m := *w.trial
	m.b = model
	want := m.picture()
	for range 2 {
		if got := w.picture(); !slices.Equal(got, want) {
			w.Fatalf("after %d calls: got %v, want %v", at, got, want)
		}
		if w.s.Restart == nil {
			return
		}
		w.use(w.s.Restart(w.TB))
	}
}

// pick is one of some.
func pick[T any](w *walk, some ...T) T { return some[w.rnd.IntN(len(some))] }

// The few names that everything goes by, so that calls meet.
func (w *walk) volume() string { return pick(w, "v0", "v1", "v2", "v3", "v4", "v5") }
func (w *walk) snap() string   { return pick(w, "s0", "s1", "s2") }
func (w *walk) node() string   { return pick(w, "a", "b", "c") }

// next is a random call.
func (w *walk) next() (string, func(backend.Backend) (string, error)) {
	vol, snap, node, n := w.volume(), w.snap(), w.node(), int64(w.rnd.IntN(4))
	id, sid := w.volumeID(vol), w.snapshotID(snap)
	switch w.rnd.IntN(14) {
	case 0, 1, 2:
		return w.nextCreate(vol, snap, n)
	case 3:
		return "delete " + vol, func(b backend.Backend) (string, error) { return "", b.DeleteVolume(w.ctx, id) }
	case 4:
		return fmt.Sprintf("expand %s to %d", vol, n), func(b backend.Backend) (string, error) {
			v, err := b.ExpandVolume(w.ctx, id, backend.Size{Required: w.size(n)})
			return w.text(v), err
		}
	case 5:
		t := tunables(int(n), 1)
		return fmt.Sprintf("tune %s with %d", vol, n), func(b backend.Backend) (string, error) {
			v, err := b.TuneVolume(w.ctx, id, t)
			return w.text(v), err
		}
	case 6:
		return "snapshot " + snap + " of " + vol, func(b backend.Backend) (string, error) {
			s, err := b.CreateSnapshot(w.ctx, backend.CreateSnapshot{Name: snap, Of: id})
			return fmt.Sprint(s.ID, s.Of, s.Size), err
		}
	case 7:
		return "delete " + snap, func(b backend.Backend) (string, error) { return "", b.DeleteSnapshot(w.ctx, sid) }
	case 8, 9, 10:
		return w.nextPublish(id, vol, node)
	case 11, 12:
		node := pick(w, node, node, node, "")
		return "unpublish " + vol + " from " + node, func(b backend.Backend) (string, error) { return "", b.Unpublish(w.ctx, id, node) }
	}
	if w.rnd.IntN(3) == 0 {
		return "fence " + node, func(b backend.Backend) (string, error) { return "", b.Fence(w.ctx, node) }
	}
	return "unfence " + node, func(b backend.Backend) (string, error) { return "", b.Unfence(w.ctx, node) }
}

// text is a volume without what is random.
func (w *walk) text(v backend.Volume) string {
	v.Identity = ""
	return volumeText(v)
}

func (w *walk) nextCreate(vol, snap string, n int64) (string, func(backend.Backend) (string, error)) {
	ask := w.asks(vol, n)
	switch w.rnd.IntN(4) {
	case 0:
		ask.Source.Snapshot = w.snapshotID(snap)
	case 1:
		ask.Source.Volume = w.volumeID(w.volume())
	case 2:
		ask.Size.Limit = w.size(n + int64(w.rnd.IntN(2)))
	}
	return fmt.Sprintf("create %+v", ask), func(b backend.Backend) (string, error) {
		v, err := b.CreateVolume(w.ctx, ask)
		return w.text(v), err
	}
}

func (w *walk) nextPublish(id backend.ID, vol, node string) (string, func(backend.Backend) (string, error)) {
	p := w.to(id, node)
	p.Transport = pick(w, w.s.Transports...)
	p.Initiator = initiator(p.Transport, node)
	p.ReadOnly, p.Shared = w.rnd.IntN(4) == 0, w.rnd.IntN(2) == 0
	p.Auth = auth(p.Transport, w.rnd.IntN(3))
	return fmt.Sprintf("publish %s to %s over %s, read-only %t, shared %t", vol, node, p.Transport, p.ReadOnly, p.Shared), func(b backend.Backend) (string, error) {
		c, err := b.Publish(w.ctx, p)
		return fmt.Sprint(c.Transport, c.ReadOnly, c.Size, tunablesText(c.Tunables, c.Generation)), err
	}
}
