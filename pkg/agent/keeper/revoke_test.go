package keeper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	memstore "github.com/csi-mpath/csi-mpath/pkg/agent/store/memory"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// moody is a store of which some verbs fail.
type moody struct {
	store.Store
	object, activate, deactivate error
}

// moodyRig is a keeper over such a store. Its moods are the test's: the loops of the
// keeper ask for nothing but the usage.
func moodyRig(t *testing.T) (*rig, *moody) {
	s := &moody{}
	return newRigOver(t, true, func(under *memstore.Store) store.Store { s.Store = under; return s }), s
}

func (s *moody) Object(ctx context.Context, name string) (store.Object, error) {
	if s.object != nil {
		return store.Object{}, s.object
	}
	return s.Store.Object(ctx, name)
}

func (s *moody) Activate(ctx context.Context, name string) (store.Backing, error) {
	if s.activate != nil {
		return store.Backing{}, s.activate
	}
	return s.Store.Activate(ctx, name)
}

func (s *moody) Deactivate(ctx context.Context, name string) error {
	return errors.Join(s.deactivate, s.Store.Deactivate(ctx, name))
}

// A store that is ill keeps no node in (I9): of two that share a volume one is
// unpublished, or revoked by the reconciler, whatever the store says.
func TestAStoreThatFailsKeepsNobodyIn(t *testing.T) {
	ill := errors.New("ill")
	for name, break1 := range map[string]func(*moody){
		"object":     func(s *moody) { s.object = ill },
		"vanished":   func(s *moody) { s.object = backend.ErrNotFound },
		"activate":   func(s *moody) { s.activate = ill },
		"deactivate": func(s *moody) { s.deactivate = ill },
	} {
		for _, nodes := range [][]string{{"a"}, {"a", "b"}} {
			r, s := moodyRig(t)
			v := r.create("v")
			c := r.publish(shared(v.ID, nodes[0]))
			for _, n := range nodes[1:] {
				r.publish(shared(v.ID, n))
			}
			break1(s)
			if err := r.b.Unpublish(t.Context(), v.ID, "a"); err != nil {
				t.Errorf("%s, %v: %v", name, nodes, err)
			}
			if r.iscsi.writable(v.Identity, c.Initiator) {
				t.Errorf("%s, %v: the node still has its access", name, nodes)
			}
			if p := r.publications(); len(p) != len(nodes)-1 {
				t.Errorf("%s, %v: left: %+v", name, nodes, p)
			}
		}
	}
}

func TestTheReconcilerRevokesWhateverTheStoreSays(t *testing.T) {
	r, s := moodyRig(t)
	v := r.create("v")
	c := r.publish(shared(v.ID, "a"))
	r.publish(shared(v.ID, "b"))
	rec, err := r.k.journal.get(v.ID)
	if err != nil {
		t.Fatal(err)
	}
	next, _ := rec.revoke("a")
	if err := r.k.journal.write(next); err != nil {
		t.Fatal(err)
	}
	s.object = errors.New("ill")
	if _, err := r.k.settleOne(t.Context(), v.ID, inventory{}); !errors.Is(err, s.object) {
		t.Errorf("got %v, want what the store said", err)
	}
	if r.iscsi.writable(v.Identity, c.Initiator) {
		t.Error("the node still has its access")
	}
}

// While a node's access drains the kernel lists none of that volume's: that must
// not hold up the repair of others, nor hide them.
func TestAnExporterThatCannotListHoldsNobodyUp(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, _ *heard) {
		v := r.create("v")
		r.publish(to(v.ID, "n"))
		r.iscsi.mu.Lock()
		r.iscsi.mute = true
		r.iscsi.mu.Unlock()
		if p := r.publications(); len(p) != 1 {
			t.Errorf("publications: %+v", p)
		}
		for range 2 {
			r.iscsi.forget()
			time.Sleep(2 * reconcileEvery) // the bubble's
			synctest.Wait()
			if len(r.iscsi.serving()) != 1 {
				t.Fatal("the reconciler does not go on")
			}
		}
	})
}

func TestWhatNoExporterCanServeIsNotWrittenDown(t *testing.T) {
	if maxPublications > export.MaxAccess {
		t.Errorf("%d publications, and an exporter serves %d", maxPublications, export.MaxAccess)
	}
}

// Without its journal an agent does not know who has what the kernel serves.
func TestWithoutItsJournalAFenceIsNoneBeforeNothingUnknownIsServed(t *testing.T) {
	r := newRig(t, true)
	v := r.create("v")
	c := r.publish(to(v.ID, "n"))
	if err := os.Remove(r.recordPath(v.ID)); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	err := r.b.Fence(t.Context(), "n")
	if r.iscsi.writable(v.Identity, c.Initiator) && !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("fenced (%v), and it can write", err)
	}
	r.unpublish(v.ID, "")
	if err := r.b.Fence(t.Context(), "n"); err != nil {
		t.Error(err)
	}
}

func TestAVolumeThatNobodyHasIsServedOverNoOtherTransport(t *testing.T) {
	r := newRig(t, true)
	v := r.create("v")
	c := r.publish(to(v.ID, "n"))
	if err := os.Remove(r.recordPath(v.ID)); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	other := to(v.ID, "m")
	other.Transport, other.Initiator = backend.NVMe, "nqn.2025-01.io.csi-mpath:node:m"
	r.publish(other)
	if r.iscsi.writable(v.Identity, c.Initiator) {
		t.Error("a node that nobody knows of can write beside the one that has it")
	}
}

// A full disk keeps nobody in: files can still be removed on it.
func TestAnUnpublishNeedsNoSpace(t *testing.T) {
	r := newRig(t, true)
	v := r.create("v")
	c := r.publish(to(v.ID, "n"))
	volumes := r.k.journal.volumes
	r.k.journal.volumes = filepath.Join(volumes, "full") // where no file can be made, or is
	if err := r.b.Unpublish(t.Context(), v.ID, "n"); err == nil {
		t.Error("answered, and it is not durable")
	}
	if r.iscsi.writable(v.Identity, c.Initiator) {
		t.Error("it can still write")
	}
	r.k.journal.volumes = volumes
	r.unpublish(v.ID, "n")
	r.reopen()
	if p := r.publications(); len(p) != 0 {
		t.Errorf("left: %+v", p)
	}
}

// What other tenants have is not there, not even as an error or event.
func TestAnotherTenantsDamageHasNoName(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, _ *heard) {
		v, o := r.create("v"), r.create("o")
		r.publish(to(v.ID, "n"))
		r.publish(to(o.ID, "n"))
		if err := errors.Join(os.WriteFile(r.recordPath(v.ID), []byte("{"), 0o600), os.Remove(r.recordPath(o.ID))); err != nil {
			t.Fatal(err)
		}
		r.reopen()
		var mu sync.Mutex
		var told []string
		go func() {
			_ = r.k.For("other").Watch(t.Context(), func(e backend.Event) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, fmt.Sprint(e))
			})
		}()
		time.Sleep(2 * reconcileEvery) // the bubble's
		synctest.Wait()
		err := r.k.For("other").Fence(t.Context(), "n")
		mu.Lock()
		defer mu.Unlock()
		if !errors.Is(err, backend.ErrUnavailable) || len(told) == 0 {
			t.Fatalf("got %v, told %q", err, told)
		}
		for _, secret := range []string{v.ID.Object, o.ID.Object, v.Identity, o.Identity} {
			if text := err.Error() + strings.Join(told, " "); strings.Contains(text, secret) {
				t.Errorf("%s is in %s", secret, text)
			}
		}
	})
}
