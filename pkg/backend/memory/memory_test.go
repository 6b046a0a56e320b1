package memory

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

const mib = 1 << 20

// pool is one of 100 MiB in steps of 4.
func storage() *Storage {
	return New(Config{
		Pools: []backend.Pool{{Name: "p", Transports: []backend.Transport{backend.ISCSI}, Snapshots: true, Step: 4 * mib, Min: 4 * mib, Max: 64 * mib}},
		Room:  map[string]int64{"p": 100 * mib},
	})
}

func create(t *testing.T, b backend.Backend, name string, size int64) backend.Volume {
	t.Helper()
	v, err := b.CreateVolume(t.Context(), backend.CreateVolume{Name: name, Pool: "p", Size: backend.Size{Required: size}})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func publish(id backend.ID, node string) backend.Publish {
	return backend.Publish{Volume: id, Node: node, Initiator: "iqn.2025-01.io.csi-mpath:" + node, Transport: backend.ISCSI}
}

func TestARoomThatIsFullTakesNoMore(t *testing.T) {
	b := storage().For("a")
	create(t, b, "one", 60*mib)
	_, err := b.CreateVolume(t.Context(), backend.CreateVolume{Name: "two", Pool: "p", Size: backend.Size{Required: 41 * mib}})
	if !errors.Is(err, backend.ErrNoSpace) {
		t.Errorf("got %v", err)
	}
	v := create(t, b, "three", 36*mib)
	if _, err := b.ExpandVolume(t.Context(), v.ID, backend.Size{Required: 41 * mib}); !errors.Is(err, backend.ErrNoSpace) {
		t.Errorf("expanded: got %v", err)
	}
	if c, err := b.Capacity(t.Context(), "p"); err != nil || c.Available != 4*mib || c.MaxVolume != 4*mib {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestAnErrorIsAllThatIsWrong(t *testing.T) {
	b := storage().For("a")
	v := create(t, b, "v", mib)
	if _, err := b.Publish(t.Context(), publish(v.ID, "n1")); err != nil {
		t.Fatal(err)
	}
	if err := b.Fence(t.Context(), "n2"); err != nil {
		t.Fatal(err)
	}
	_, err := b.Publish(t.Context(), publish(v.ID, "n2"))
	if !errors.Is(err, backend.ErrFenced) || !errors.Is(err, backend.ErrInUse) {
		t.Errorf("a fenced node and a volume of another one: got %v", err)
	}
}

func TestAVolumeThatANodeCouldWriteToIsNotCalledBlank(t *testing.T) {
	b := storage().For("a")
	v := create(t, b, "v", mib)
	if v.Content != backend.ContentBlank {
		t.Errorf("new: %s", v.Content)
	}
	for _, want := range []backend.Content{backend.ContentBlank, backend.ContentUnknown} {
		if c, err := b.Publish(t.Context(), publish(v.ID, "n")); err != nil || c.Content != want {
			t.Errorf("got %s, %v; want %s", c.Content, err, want)
		}
	}
}

func TestTenantsDoNotSeeEachOther(t *testing.T) {
	s := storage()
	a, b := s.For("a"), s.For("b")
	v := create(t, a, "v", mib)
	if w := create(t, b, "v", mib); w.ID == v.ID {
		t.Error("both got the same volume")
	}
	if err := b.DeleteVolume(t.Context(), v.ID); err != nil {
		t.Error(err)
	}
	if _, err := a.Volume(t.Context(), v.ID); err != nil {
		t.Errorf("the other tenant deleted it: %v", err)
	}
}

func TestASlowWatcherIsToldThatItLostEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := storage().For("a")
		ctx, cancel := context.WithCancel(t.Context())
		hold, got := make(chan struct{}), make(chan backend.Event, 2*maxEvents)
		done := make(chan error, 1)
		go func() { done <- b.Watch(ctx, func(e backend.Event) { got <- e; <-hold }) }()
		synctest.Wait()
		for range maxEvents + 2 { // the first is in f
			if err := b.Fence(ctx, "n"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		close(hold)
		synctest.Wait()
		first, second := <-got, <-got
		if first.Kind != backend.NodeFenced || first.Node != "n" || second.Kind != backend.EventsLost || len(got) != maxEvents {
			t.Errorf("got %s, %s and %d more", first.Kind, second.Kind, len(got))
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch ended with %v", err)
		}
	})
}
