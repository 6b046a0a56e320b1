package keeper

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// heard has the events of a backend; it ends with the test.
type heard struct {
	mu  sync.Mutex
	all []backend.Event
}

func hear(t *testing.T, b backend.Backend) *heard {
	h := &heard{}
	go func() {
		_ = b.Watch(t.Context(), func(e backend.Event) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.all = append(h.all, e)
		})
	}()
	synctest.Wait()
	return h
}

// take are the events since the last take, "Kind node portal".
func (h *heard) take() (out []string) {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.all {
		text := string(e.Kind)
		for _, s := range []string{e.Node, e.Portal} {
			if s != "" {
				text += " " + s
			}
		}
		out = append(out, text)
	}
	h.all = nil
	return out
}

// bubble runs f with a rig and its events in virtual time.
func bubble(t *testing.T, f func(t *testing.T, r *rig, h *heard)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, true)
		f(t, r, hear(t, r.b))
	})
}

// same compares what was heard, in any order.
func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("heard %q, want %q", got, want)
	}
}

func TestAnExportThatIsGoneIsRepairedAndToldOf(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, h *heard) {
		v := r.create("v")
		c := r.publish(to(v.ID, "n"))
		time.Sleep(reconcileEvery + time.Second)
		same(t, h.take())
		if err := r.iscsi.Remove(t.Context(), v.ID, v.Identity); err != nil {
			t.Fatal(err)
		}
		time.Sleep(reconcileEvery + time.Second)
		same(t, h.take(), "ExportRepaired")
		if !r.iscsi.writable(v.Identity, c.Initiator) || r.k.Stats().Repairs != 1 {
			t.Errorf("it is not served again; stats %+v", r.k.Stats())
		}
	})
}

func TestUnknownAccessInOurOwnExportsIsRemoved(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, h *heard) {
		v := r.create("v")
		r.publish(to(v.ID, "n"))
		e := r.iscsi.serving()[v.Identity]
		e.Access = append(slices.Clone(e.Access), export.Access{Initiator: "iqn.2025-01.x:stranger"})
		if _, err := r.iscsi.Ensure(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		time.Sleep(reconcileEvery + time.Second)
		if r.iscsi.writable(v.Identity, "iqn.2025-01.x:stranger") {
			t.Error("the stranger still has access")
		}
		same(t, h.take(), "ExportRepaired")
	})
}

func TestWhatFailsIsTriedAgainSoon(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, _ *heard) {
		v := r.create("v")
		r.publish(to(v.ID, "n"))
		r.iscsi.forget()
		r.iscsi.refusing(errors.New("the portal's address is not there yet"))
		r.reopen()
		r.iscsi.refusing(nil)
		time.Sleep(reconcileSoon + time.Second)
		if len(r.iscsi.serving()) != 1 {
			t.Error("it is not served")
		}
	})
}

func TestAnOrphanIsToldOfOnceAndNotRemoved(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, h *heard) {
		if _, err := r.iscsi.Ensure(t.Context(), export.Export{Identity: nobody}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * reconcileEvery)
		same(t, h.take(), "OrphanFound")
		if len(r.iscsi.serving()) != 1 || r.k.Stats().Orphans[OrphanExport] != 1 {
			t.Errorf("served: %v, stats %+v", r.iscsi.serving(), r.k.Stats())
		}
	})
}

func TestAnUnfinishedObjectIsAnOrphanOnlyAfterAWhile(t *testing.T) {
	var s orphans
	half := []Orphan{{Kind: OrphanObject, Pool: "p", Name: "v-1"}}
	begun := time.Unix(1000, 0)
	if got := s.seen(half, begun); len(got) != 0 {
		t.Errorf("at once: %v", got)
	}
	got := s.seen(half, begun.Add(unfinishedAfter))
	if len(got) != 1 || !got[0].Since.Equal(begun) || len(s.news(got)) != 1 || len(s.news(got)) != 0 {
		t.Errorf("after a while: %v", got)
	}
	if s.seen(nil, begun.Add(unfinishedAfter)); len(s.seen(half, begun.Add(2*unfinishedAfter))) != 0 {
		t.Error("one that was away counts as old")
	}
}

func TestAVerbDoesNotWaitLongForTheReconciler(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, _ *heard) {
		v := r.create("v")
		c := r.publish(shared(v.ID, "n"))
		r.publish(shared(v.ID, "m"))
		release := r.iscsi.hold(c.Initiator)
		defer release()
		rec, _ := r.k.journal.get(v.ID)
		next, _ := rec.revoke("n")
		if err := r.k.journal.write(next); err != nil {
			t.Fatal(err)
		}
		time.Sleep(reconcileEvery + time.Second) // it drains, and holds the volume
		begun := time.Now()
		if _, err := r.b.TuneVolume(t.Context(), v.ID, map[string]string{"a": "b"}); err != nil || time.Since(begun) > 0 {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

func TestSessionsThatComeAndGoAreToldOf(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, h *heard) {
		v := r.create("v")
		c := r.publish(to(v.ID, "n"))
		at := func(portal string) export.Session {
			return export.Session{Identity: v.Identity, Initiator: c.Initiator, Portal: portal}
		}
		r.iscsi.connect(at("1"), at("1"), at("2"))
		time.Sleep(2 * sessionsEvery)
		same(t, h.take(), "SessionGained n 1", "SessionGained n 2")
		if p := r.publications(); p[0].Sessions["1"] != 2 || p[0].Sessions["2"] != 1 {
			t.Errorf("sessions: %v", p[0].Sessions)
		}
		r.iscsi.connect(at("1"))
		time.Sleep(2 * sessionsEvery)
		same(t, h.take(), "SessionLost n 2")
		r.iscsi.connect()
		time.Sleep(2 * sessionsEvery)
		same(t, h.take(), "SessionLost n 1")
	})
}

func TestEventsOfATenantAreItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, h *heard) {
		other := hear(t, r.k.For("other"))
		if err := r.b.Fence(t.Context(), "n"); err != nil {
			t.Fatal(err)
		}
		same(t, h.take(), "NodeFenced n")
		same(t, other.take())
	})
}

func TestPoolsThatFillAreToldOfToAll(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, h *heard) {
		other := hear(t, r.k.For("other"))
		r.store.Fill(1 << 40)
		time.Sleep(2 * poolsEvery)
		got := h.take()
		if !slices.Contains(got, "PoolFilling") {
			t.Errorf("heard %q", got)
		}
		same(t, other.take(), got...)
		r.store.Fill(0)
		time.Sleep((recoverAfter + 1) * poolsEvery)
		same(t, h.take(), "PoolRecovered")
	})
}

func TestAPoolIsCalledBetterOnlyWhenItStaysSo(t *testing.T) {
	const f, F, o = 1, 2, 0 // filling, full, neither
	for _, c := range []struct {
		looks []int
		want  string
	}{
		{[]int{o, o}, "[]"},
		{[]int{f, f}, "[PoolFilling]"},
		{[]int{F, F}, "[PoolFilling PoolFull]"},
		{[]int{f, F}, "[PoolFilling PoolFull]"},
		{[]int{f, o, o, f, o, o, f}, "[PoolFilling]"},
		{[]int{f, o, o, o, o}, "[PoolFilling PoolRecovered]"},
		{[]int{F, f, f, f, F}, "[PoolFilling PoolFull PoolFull]"},
		{[]int{F, f, F, f, F}, "[PoolFilling PoolFull]"},
		{[]int{F, o, o, o, f}, "[PoolFilling PoolFull PoolRecovered PoolFilling]"},
	} {
		var s fill
		got := []backend.EventKind{}
		for _, look := range c.looks {
			got = append(got, s.step(look == f, look == F)...)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%v: told %v, want %s", c.looks, got, c.want)
		}
	}
}

func TestASlowWatcherLosesTheOldestAndIsTold(t *testing.T) {
	e := newEvents()
	w, err := e.add("t")
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxEvents + 3 {
		e.tell("t", backend.Event{Kind: backend.NodeFenced, Node: fmt.Sprint(i)})
	}
	got, _ := e.take(w)
	if len(got) != maxEvents+1 || got[0].Kind != backend.EventsLost || got[1].Node != "3" {
		t.Errorf("%d events, the first %+v, then %+v", len(got), got[0], got[1])
	}
}

func TestWatchersAreBounded(t *testing.T) {
	e := newEvents()
	for range maxWatchers {
		if _, err := e.add("t"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.add("t"); !errors.Is(err, backend.ErrNoSpace) {
		t.Errorf("one more: %v", err)
	}
}

func TestWatchingEndsWithTheKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, true)
		ended := make(chan error, 1)
		go func() { ended <- r.b.Watch(t.Context(), func(backend.Event) {}) }()
		synctest.Wait()
		r.k.Close()
		if err := <-ended; !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		r.open()
	})
}
