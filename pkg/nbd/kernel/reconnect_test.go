package kernel

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/nbd/proto"
)

func TestReconnectReplacesADeadConnection(t *testing.T) {
	f := newFake(t)
	d, old := f.attach("vol-1")
	old.die()
	s := &server{}
	defer s.die()
	got, err := f.k.Reconnect(f.ctx(), d.Index, options("vol-1"), s.serve)
	must(t, err)
	if got.Index != 0 || len(s.conns) != 1 || f.count(cmdReconfigure) != 1 {
		t.Fatalf("%+v, %d connections after %d calls", got, len(s.conns), f.count(cmdReconfigure))
	}
	if m := f.devices[0].last; m.timeout != nil {
		t.Fatal("a timeout was sent: it resets queue/io_timeout")
	}
}

func TestReconnectWaitsForTheDeathOfTheOldConnection(t *testing.T) {
	f := newFake(t)
	d, old := f.attach("vol-1")
	inner := f.k.exchange
	f.k.exchange = func(m message) (message, error) {
		if f.count(cmdReconfigure) == 2 {
			old.die()
		}
		return inner(m)
	}
	s := &server{}
	defer s.die()
	_, err := f.k.Reconnect(f.ctx(), d.Index, options("vol-1"), s.serve)
	must(t, err)
	if n := f.count(cmdReconfigure); n != 3 || len(s.conns) != 1 {
		t.Fatalf("%d connections after %d calls, want one after 3", len(s.conns), n)
	}
}

// until is a context that ends when the kernel has been called so often.
func (f *fake) until(c command, calls int) context.Context {
	ctx, cancel := context.WithCancel(f.t.Context())
	f.t.Cleanup(cancel)
	inner := f.k.exchange
	f.k.exchange = func(m message) (message, error) {
		if f.count(c) == calls {
			cancel()
		}
		return inner(m)
	}
	return ctx
}

func TestReconnectEndsWithItsContextWhileTheOldServerLives(t *testing.T) {
	f := newFake(t)
	d, _ := f.attach("vol-1")
	s := &server{}
	_, err := f.k.Reconnect(f.until(cmdReconfigure, 3), d.Index, options("vol-1"), s.serve)
	want(t, err, ErrAlive)
	if len(s.conns) != 0 {
		t.Fatal("a connection that the kernel dropped is served")
	}
}

func TestAKernelThatSaysItHasNoDeadConnectionIsAskedAgain(t *testing.T) {
	f := newFake(t)
	d, old := f.attach("vol-1")
	old.die()
	inner, n := f.k.exchange, 0
	f.k.exchange = func(m message) (message, error) {
		if n++; n < 3 {
			return message{}, unix.ENOSPC
		}
		return inner(m)
	}
	s := &server{}
	defer s.die()
	_, err := f.k.Reconnect(f.ctx(), d.Index, options("vol-1"), s.serve)
	must(t, err)
}

func TestReconnectGivesBackOnlyWhatIsDead(t *testing.T) {
	f := newFake(t)
	o := options("vol-1")
	o.Connections, o.NoPathTimeout, o.Timeout = 2, time.Second, 5*time.Second
	old := &server{}
	defer old.die()
	_, err := f.k.Attach(f.ctx(), o, old.serve)
	must(t, err)
	if got := f.get(0, "queue/io_timeout"); got != "30000" {
		t.Fatalf("io_timeout was set to %s: with two connections it ends those that live", got)
	}
	must(t, old.conns[0].Close())
	s := &server{}
	defer s.die()
	_, err = f.k.Reconnect(f.until(cmdReconfigure, 3), 0, o, s.serve)
	want(t, err, ErrAlive)
	if len(s.conns) != 1 {
		t.Fatalf("%d connections, want the one that was dead", len(s.conns))
	}
}

func TestReconnectUnderAWrongBackendTouchesNothing(t *testing.T) {
	f := newFake(t)
	d, old := f.attach("vol-1")
	old.die()
	_, err := f.k.Reconnect(f.ctx(), d.Index, options("vol-2"), old.serve)
	want(t, err, ErrForeign)
	_, err = f.k.Reconnect(f.ctx(), 7, options("vol-1"), old.serve)
	want(t, err, ErrNotAttached)
	want(t, f.k.Disconnect(f.ctx(), d.Index, "vol-2"), ErrForeign)
	want(t, f.k.Resize(f.ctx(), d.Index, "vol-2", 1<<30), ErrForeign)
	if !slices.Equal(f.calls, []command{cmdConnect}) {
		t.Fatalf("the kernel was asked: %v", f.calls)
	}
}

func TestADeviceLargerThanItsVolumeIsNotReconnected(t *testing.T) {
	f := newFake(t)
	d, old := f.attach("vol-1")
	old.die()
	o := options("vol-1")
	o.Size /= 2
	if _, err := f.k.Reconnect(f.ctx(), d.Index, o, old.serve); err == nil || f.count(cmdReconfigure) != 0 {
		t.Fatal(err)
	}
}

func TestDisconnectTwiceIsNoError(t *testing.T) {
	f := newFake(t)
	d, _ := f.attach("vol-1")
	must(t, d.Disconnect(f.ctx()))
	must(t, d.Disconnect(f.ctx()))
	must(t, f.k.Disconnect(f.ctx(), d.Index, "vol-1"))
	if f.count(cmdDisconnect) != 1 {
		t.Fatalf("%d calls", f.count(cmdDisconnect))
	}
}

func TestADeviceWhoseNumberWasGivenAwayIsLeftAlone(t *testing.T) {
	f := newFake(t)
	d, _ := f.attach("vol-1")
	must(t, f.k.Disconnect(f.ctx(), d.Index, "vol-1"))
	f.attach("vol-2")
	must(t, d.Disconnect(f.ctx()))
	if f.devices[0] == nil {
		t.Fatal("the other device was detached")
	}
}

func TestADisconnectThatHangsIsBoundedAndCutsItsConnections(t *testing.T) {
	f := newFake(t)
	d, s := f.attach("vol-1")
	f.hang[cmdDisconnect] = make(chan struct{})
	f.unhang(cmdDisconnect, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	want(t, d.Disconnect(ctx), context.DeadlineExceeded)
	if !dead(f.devices[0].fds[0]) {
		t.Fatal("the kernel's end was not freed")
	}
	if _, err := s.conns[0].Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) {
		t.Fatalf("got %v: the server closes its connection, nobody else", err)
	}
}

func TestADeviceThatOthersServeIsDetachedOnlyWhenIdle(t *testing.T) {
	f := newFake(t)
	f.attach("vol-1")
	f.set(0, "inflight", "       0        1")
	want(t, f.k.Disconnect(f.ctx(), 0, "vol-1"), ErrInFlight)
	if f.count(cmdDisconnect) != 0 {
		t.Fatal("the kernel was asked: it would hang with a server that does not read")
	}
	f.set(0, "inflight", "       0        0")
	must(t, f.k.Disconnect(f.ctx(), 0, "vol-1"))
}

func TestADeviceWithOneLivingConnectionIsNotStale(t *testing.T) {
	f := newFake(t)
	o := options("ours-1")
	o.Connections, o.NoPathTimeout, o.Timeout = 2, time.Second, 5*time.Second
	s := &server{}
	defer s.die()
	_, err := f.k.Attach(f.ctx(), o, s.serve)
	must(t, err)
	for _, q := range []string{"mq/0", "mq/1"} {
		must(t, os.MkdirAll(f.path(0, q), 0o755))
	}
	must(t, s.conns[1].Close())
	_, err = f.k.ReleaseStale(f.ctx(), "ours-", func(Status) bool { return false })
	want(t, err, ErrAlive)
	if f.count(cmdDisconnect) != 0 {
		t.Fatal("it was detached")
	}
}

func TestTheKernelSendsNoMoreThanTheServerHolds(t *testing.T) {
	for _, c := range []struct{ arena, kb, depth int }{
		{64 << 20, 1024, 64}, {64 << 20, 1280, 32}, {64 << 20, 128, 128}, {32 << 20, 32 << 10, 4}, {128 << 20, 1024, 128},
	} {
		if o := (Options{Arena: c.arena, MaxSectorsKB: c.kb}); o.depth() != c.depth {
			t.Errorf("%+v: depth %d", c, o.depth())
		}
	}
}

func TestStaleDevicesAreReleasedAndOthersAreNot(t *testing.T) {
	f := newFake(t)
	for _, b := range []string{"ours-stale", "ours-kept", "ours-alive", "foreign"} {
		_, s := f.attach(b)
		if b != "ours-alive" {
			s.die()
		}
	}
	got, err := f.k.ReleaseStale(f.ctx(), "ours-", func(s Status) bool { return s.Backend == "ours-kept" })
	want(t, err, ErrAlive)
	if len(got) != 1 || got[0].Backend != "ours-stale" {
		t.Fatalf("released %+v", got)
	}
	left, err := f.k.List()
	must(t, err)
	if len(left) != 3 || f.count(cmdDisconnect) != 1 {
		t.Fatalf("left %+v", left)
	}
	if _, err := f.k.ReleaseStale(f.ctx(), "", func(Status) bool { return false }); err == nil {
		t.Fatal("every device of the node would have been released")
	}
}

func TestAMountedDeviceIsNotReleased(t *testing.T) {
	f := newFake(t)
	_, s := f.attach("ours-1")
	s.die()
	f.claimed = unix.EBUSY
	_, err := f.k.ReleaseStale(f.ctx(), "ours-", func(Status) bool { return false })
	want(t, err, ErrInUse)
	if f.count(cmdReconfigure) != 0 {
		t.Fatal("it was touched")
	}
}

func TestOptionsThatWouldLoseIOAreRefused(t *testing.T) {
	for why, change := range map[string]func(o *Options){
		"no backend":                        func(o *Options) { o.Backend = "" },
		"a backend with blanks":             func(o *Options) { o.Backend = "a b" },
		"no size":                           func(o *Options) { o.Size = 0 },
		"a size of half blocks":             func(o *Options) { o.Size += 512 },
		"a block size of 3000":              func(o *Options) { o.BlockSize = 3000 },
		"a block size of 64 KiB":            func(o *Options) { o.BlockSize = 65536 },
		"a timeout on one connection":       func(o *Options) { o.Timeout = time.Second },
		"two without timeout":               func(o *Options) { o.Connections = 2 },
		"two that wait for ever for a path": func(o *Options) { o.Connections, o.Timeout = 2, time.Minute },
		"two whose timeout comes first": func(o *Options) {
			o.Connections, o.Timeout, o.NoPathTimeout = 2, time.Minute, time.Minute
		},
		"two without multi-conn": func(o *Options) {
			o.Connections, o.Timeout, o.NoPathTimeout = 2, time.Minute, time.Second
			o.Flags &^= proto.CanMultiConn
		},
		"a dead timeout of parts of seconds": func(o *Options) { o.DeadConnTimeout = 1500 * time.Millisecond },
		"an I/O timeout of a microsecond":    func(o *Options) { o.IOTimeout = time.Microsecond },
		"requests of 64 MiB":                 func(o *Options) { o.MaxSectorsKB = 64 << 10 },
		"a dirty ratio over 100":             func(o *Options) { o.DirtyRatio = 101 },
		"a negative index":                   func(o *Options) { o.Index = -2 },
	} {
		o := options("vol-1")
		change(&o)
		if err := o.fill(); err == nil {
			t.Errorf("%s: accepted", why)
		}
	}
}
