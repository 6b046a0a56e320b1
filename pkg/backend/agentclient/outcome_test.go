package agentclient_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/agent/pki"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/backend/agentclient"
	"github.com/csi-mpath/csi-mpath/test/port"
)

// hold is an address where a server comes and goes.
func hold(t *testing.T) string {
	t.Helper()
	h, err := port.Hold()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h.Addr()
}

// reached waits until the agent answers.
func reached(t *testing.T, c *agentclient.Client) {
	t.Helper()
	for {
		_, err := c.Info(t.Context())
		if err == nil {
			return
		}
		if !errors.Is(err, backend.ErrUnavailable) {
			t.Fatal(err)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal(err)
		}
	}
}

func TestAnAgentThatIsAwayCannotBeReachedAndIsFoundAgain(t *testing.T) {
	dir, address, s := certificates(t), hold(t), twin(pool)
	c := connect(t, dir, address, "mine")
	if _, err := c.Info(t.Context()); !errors.Is(err, backend.ErrUnavailable) {
		t.Fatal(err)
	}
	for range 2 {
		_, stop := start(t, dir, address, s.For)
		reached(t, c)
		stop()
		if err := c.Fence(t.Context(), "node"); !errors.Is(err, backend.ErrUnavailable) {
			t.Fatal(err)
		}
	}
}

// stuck is a backend of which one verb ends with its context only.
type stuck struct {
	backend.Backend
	in chan struct{}
}

func (s stuck) Unpublish(ctx context.Context, _ backend.ID, _ string) error {
	s.in <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

// unpublish calls the stuck verb in the background.
func unpublish(ctx context.Context, c *agentclient.Client) <-chan error {
	done := make(chan error, 1)
	go func() { done <- c.Unpublish(ctx, backend.ID{Pool: "pool", Object: "v-1"}, "node") }()
	return done
}

func TestACallThatLosesItsServerHasAnUnknownOutcome(t *testing.T) {
	dir, b := certificates(t), stuck{twin(pool).For("mine"), make(chan struct{}, 1)}
	address, stop := start(t, dir, "127.0.0.1:0", func(string) backend.Backend { return b })
	done := unpublish(t.Context(), connect(t, dir, address, "mine"))
	<-b.in
	stop()
	if err := <-done; !errors.Is(err, backend.ErrUnavailable) {
		t.Fatal(err)
	}
}

func TestTheEndOfAContextIsTheErrorOfThatContext(t *testing.T) {
	dir, b := certificates(t), stuck{twin(pool).For("mine"), make(chan struct{}, 1)}
	address, _ := start(t, dir, "127.0.0.1:0", func(string) backend.Backend { return b })
	c := connect(t, dir, address, "mine")
	ctx, cancel := context.WithCancel(t.Context())
	done := unpublish(ctx, c)
	<-b.in
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := <-unpublish(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestAServerThatIsNotTheAgentIsNotBelieved(t *testing.T) {
	dir := certificates(t)
	address, _ := start(t, dir, "127.0.0.1:0", twin(pool).For)
	for what, cfg := range map[string]agentclient.Config{
		"another name":      {ServerName: "storage-1.example", TLS: files(dir, "client-mine")},
		"another authority": {TLS: files(certificates(t), "client-mine")},
	} {
		cfg.Address = address
		c, err := agentclient.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Info(t.Context()); !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// liar is a backend that answers with what a name can never be.
type liar struct{ backend.Backend }

func (liar) Volume(context.Context, backend.ID) (backend.Volume, error) {
	return backend.Volume{ID: backend.ID{Pool: "../..", Object: "v"}}, nil
}

func (liar) Publish(context.Context, backend.Publish) (backend.Connection, error) {
	return backend.Connection{Transport: backend.ISCSI, Portals: []backend.Portal{{Address: "evil.example:1"}}}, nil
}

func TestAnAnswerThatMakesNoSenseIsNotPassedOn(t *testing.T) {
	dir := certificates(t)
	address, _ := start(t, dir, "127.0.0.1:0", func(tenant string) backend.Backend { return liar{twin(pool).For(tenant)} })
	c, id := connect(t, dir, address, "mine"), backend.ID{Pool: "pool", Object: "v-1"}
	if v, err := c.Volume(t.Context(), id); !errors.Is(err, backend.ErrUnavailable) || !v.ID.IsZero() {
		t.Error(v, err)
	}
	r := backend.Publish{Volume: id, Node: "n", Initiator: "iqn.2025-01.io.csi-mpath:n", Transport: backend.ISCSI}
	if v, err := c.Publish(t.Context(), r); !errors.Is(err, backend.ErrUnavailable) || len(v.Portals) != 0 {
		t.Error(v, err)
	}
}

func TestAWatchGoesOnOverARestartAndSaysWhatItMayHaveMissed(t *testing.T) {
	dir, address, s := certificates(t), hold(t), twin(pool)
	_, stop := start(t, dir, address, s.For)
	c := connect(t, dir, address, "mine")
	ctx, cancel := context.WithCancel(t.Context())
	events, done := make(chan backend.Event, 100), make(chan error, 1)
	go func() { done <- c.Watch(ctx, func(e backend.Event) { events <- e }) }()
	fenceUntil(t, s.For("mine"), events, backend.NodeFenced)
	stop()
	start(t, dir, address, s.For)
	fenceUntil(t, s.For("mine"), events, backend.EventsLost)
	fenceUntil(t, s.For("mine"), events, backend.NodeFenced)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// fenceUntil fences nodes until a watcher, who may come late, is told of a kind of
// event.
func fenceUntil(t *testing.T, b backend.Backend, events <-chan backend.Event, kind backend.EventKind) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case e := <-events:
			if e.Kind == kind {
				return
			}
		case <-tick.C:
			if err := errors.Join(b.Fence(t.Context(), "node"), b.Unfence(t.Context(), "node")); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestCertificatesThatChangeAreUsedWithoutARestart(t *testing.T) {
	dir, s := certificates(t), twin(pool)
	address, _ := start(t, dir, "127.0.0.1:0", s.For)
	c := connect(t, dir, address, "mine")
	reached(t, c)
	// Everything is made anew, by another authority, under the same names.
	next := t.TempDir()
	if _, err := pki.Init(next, []string{"127.0.0.1"}, "mine", time.Now()); err != nil {
		t.Fatal(err)
	}
	stale := connect(t, dir, address, "mine") // has read the old ones, and connects later
	for _, name := range []string{"ca.crt", "server.key", "server.crt", "client-mine.key", "client-mine.crt"} {
		if err := os.Rename(filepath.Join(next, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	reached(t, stale)
	reached(t, connect(t, dir, address, "mine"))
	reached(t, c) // whose connection lasts
}

func TestAnAddressWithoutAPortIsRefused(t *testing.T) {
	for _, a := range []string{"", "host", ":1", "host:", "a:b:c"} {
		if _, err := agentclient.New(agentclient.Config{Address: a}); err == nil || !strings.Contains(err.Error(), "host:port") {
			t.Errorf("%q: %v", a, err)
		}
	}
}
