package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Disconnect detaches the device. Requests in flight fail, so what is mounted
// must be unmounted before. It is done when nothing of the device is left: a
// device that somebody has open is detached, but ErrInUse. A server that
// neither reads nor answers does not hold it up. Repeating it is no error.
func (d *Device) Disconnect(ctx context.Context) error {
	_, err := d.k.own(d.Index, d.Backend)
	if errors.Is(err, ErrForeign) {
		return nil // detached already; its number serves somebody else now
	}
	if err != nil {
		return notAttachedIsDone(err)
	}
	return d.k.disconnect(ctx, d.Index, d.servers)
}

// Disconnect detaches a device whose server is gone, or serves it elsewhere.
// In the second case the device must have no request in flight (ErrInFlight):
// nobody here could free the kernel from a server that does not read.
func (k *Kernel) Disconnect(ctx context.Context, index int, backend string) error {
	if _, err := k.own(index, backend); err != nil {
		return notAttachedIsDone(err)
	}
	taken, stale, err := k.adopt(ctx, index, backend)
	if err != nil {
		return notAttachedIsDone(err)
	}
	defer drop(taken)
	if !stale {
		if err := k.idle(ctx, index); err != nil {
			return err
		}
	}
	return k.disconnect(ctx, index, servers(taken))
}

// adopt takes over a device that nobody serves: stale says that all its
// connections were dead and are ours now. The kernel replaces only dead ones,
// which makes this the one way to tell.
func (k *Kernel) adopt(ctx context.Context, index int, backend string) (taken []*pair, stale bool, err error) {
	n := k.connections(index)
	taken, err = k.offer(ctx, index, &Options{Backend: backend}, n)
	return taken, len(taken) == n, err
}

// idle waits a little until a device has no request in flight.
func (k *Kernel) idle(ctx context.Context, index int) error {
	ctx, cancel := context.WithTimeout(ctx, idleWithin)
	defer cancel()
	err := poll(ctx, func() (bool, error) {
		s, err := k.read(index, "inflight")
		if gone(err) {
			return true, nil
		}
		return strings.Join(strings.Fields(s), " ") == "0 0", err
	})
	if err != nil && errors.Is(err, ctx.Err()) {
		return deviceError(index, ErrInFlight)
	}
	return err
}

func notAttachedIsDone(err error) error {
	if errors.Is(err, ErrNotAttached) {
		return nil
	}
	return err
}

func (k *Kernel) disconnect(ctx context.Context, index int, servers []net.Conn) error {
	before, err := k.look(index)
	if err != nil {
		return notAttachedIsDone(err)
	}
	// The kernel sends a farewell first. When the server does not read, that waits,
	// and every other generic netlink call of the node with it: only the end of
	// the connection frees them.
	timer := time.AfterFunc(cutAfter, func() { cut(servers) })
	defer timer.Stop()
	err = k.do(ctx, fmt.Sprintf("disconnect nbd%d", index), func() error {
		_, err := k.exchange(message{cmd: cmdDisconnect, index: new(uint32(index))})
		return err
	}, nil)
	if err != nil {
		cut(servers)
		return err
	}
	err = poll(ctx, func() (bool, error) {
		s, err := k.look(index)
		if errors.Is(err, ErrNotAttached) {
			return true, nil
		}
		return err == nil && s.Backend != before.Backend, err
	})
	if err != nil && errors.Is(err, ctx.Err()) {
		return fmt.Errorf("nbd%d: %w (%w)", index, ErrInUse, err)
	}
	return err
}

func (d *Device) cut() { cut(d.servers) }

// cut ends connections without closing them: whoever serves them does that.
func cut(servers []net.Conn) {
	for _, c := range servers {
		if u, ok := c.(*net.UnixConn); ok {
			_, _ = u.CloseRead(), u.CloseWrite()
		}
	}
}

// ReleaseStale detaches devices that a process of ours left behind: those whose
// backend identifier begins with prefix, that keep does not want, that nobody
// serves, and that are not mounted. It returns those it detached, and an error
// that names those it could not.
func (k *Kernel) ReleaseStale(ctx context.Context, prefix string, keep func(Status) bool) ([]Status, error) {
	if prefix == "" {
		return nil, errors.New("nbd: release of stale devices needs the prefix of their backend identifiers")
	}
	all, err := k.List()
	if err != nil {
		return nil, err
	}
	var released []Status
	var errs []error
	for _, s := range all {
		if !strings.HasPrefix(s.Backend, prefix) || keep(s) {
			continue
		}
		if err := k.release(ctx, s); err != nil {
			errs = append(errs, fmt.Errorf("nbd%d (backend %q) stays: %w", s.Index, s.Backend, err))
			continue
		}
		released = append(released, s)
	}
	return released, errors.Join(errs...)
}

func (k *Kernel) release(ctx context.Context, s Status) error {
	err := k.do(ctx, fmt.Sprintf("look whether nbd%d is in use", s.Index), func() error { return k.node.claim(k.path(s.Index)) }, nil)
	if errors.Is(err, unix.EBUSY) {
		return ErrInUse
	}
	if err != nil {
		return err
	}
	taken, stale, err := k.adopt(ctx, s.Index, s.Backend)
	if err != nil {
		return err
	}
	defer drop(taken)
	if !stale {
		return ErrAlive
	}
	return k.disconnect(ctx, s.Index, servers(taken))
}

// Connected asks the kernel whether a device is in use. It is, too, when its
// server is gone, or when somebody only has its node open.
func (k *Kernel) Connected(ctx context.Context, index int) (bool, error) {
	var reply message
	err := k.do(ctx, fmt.Sprintf("ask for the state of nbd%d", index), func() (err error) {
		reply, err = k.exchange(message{cmd: cmdStatus, index: new(uint32(index))})
		return err
	}, nil)
	if err != nil {
		return false, err
	}
	for _, d := range reply.devices {
		if int(d.index) == index {
			return d.connected, nil
		}
	}
	return false, nil
}
