package device

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/kernel"
)

// nbdAttachment is the kernel's nbd device.
type nbdAttachment struct {
	// dev is replaced when the kernel got a new connection; a stale one only
	// knows fewer of them. Nil until the first.
	dev atomic.Pointer[kernel.Device]
	k   *kernel.Kernel
	id  string // the device's identifier; never changes
}

func (a *nbdAttachment) path() string       { return a.dev.Load().Path }
func (a *nbdAttachment) warnings() []string { return a.dev.Load().Warnings }
func (a *nbdAttachment) stays() bool        { return true }

func (a *nbdAttachment) resize(ctx context.Context, size uint64) error {
	return a.dev.Load().Resize(ctx, size)
}

func (a *nbdAttachment) detach(ctx context.Context) error { return a.dev.Load().Disconnect(ctx) }

func (a *nbdAttachment) leave(context.Context) error { return nil }

// AttachKernel makes the volume a block device, or takes over the one that a
// process before left: its unanswered requests come again. srv serves the
// connection. index is kernel.FreeIndex or the device wanted.
func (d *Device) AttachKernel(ctx context.Context, srv *nbd.Server, index int) (*BlockDevice, error) {
	k := kernel.New()
	if err := k.Available(ctx); err != nil {
		return nil, fmt.Errorf("volume %s: %w", d.cfg.Name, err)
	}
	id, err := identifier(d.cfg.StateDir, d.cfg.Name)
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w", d.cfg.Name, err)
	}
	at := &nbdAttachment{k: k, id: id}
	b := &BlockDevice{at: at, gone: make(chan struct{})}
	o := kernel.For(id, d.Info())
	var serve kernel.Serve
	serve = func(c net.Conn) {
		go func() {
			err := srv.ServeConn(context.Background(), c, d)
			switch {
			case srv.Draining(): // our own doing
			case err == nil:
				b.once.Do(func() { close(b.gone) })
			case errors.Is(err, nbd.ErrHungUp):
				d.takeBack(b, at, serve)
			}
		}()
	}
	var dev *kernel.Device
	left, err := k.Find(o.Backend)
	switch {
	case err == nil:
		b.Found = true
		dev, err = k.Reconnect(ctx, left.Index, o, serve)
	case errors.Is(err, kernel.ErrNotAttached):
		o.Index = index
		dev, err = k.Attach(ctx, o, serve)
	}
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w", d.cfg.Name, err)
	}
	at.dev.Store(dev)
	d.onGrowth(b)
	return b, nil
}

// takeBack gives the kernel a new connection when it gave the old one up: the
// device is still there, and what was sent to us comes again (I5). All of the
// old connection's requests are back.
func (d *Device) takeBack(b *BlockDevice, at *nbdAttachment, serve kernel.Serve) {
	ctx, cancel := context.WithTimeout(context.Background(), takeBackTimeout)
	defer cancel()
	o := kernel.For(at.id, d.Info())
	left, err := at.k.Find(o.Backend)
	if err == nil {
		var dev *kernel.Device
		if dev, err = at.k.Reconnect(ctx, left.Index, o, serve); err == nil {
			at.dev.Store(dev)
		}
	}
	if errors.Is(err, kernel.ErrNotAttached) || errors.Is(err, kernel.ErrForeign) {
		b.once.Do(func() { close(b.gone) })
	}
}

// DetachKernel removes a volume's block device, whoever serves it, and the
// record of what the volume was, unless a process holds the volume: that one
// clears up itself. The in-flight table stays: it is about the target. A device that
// another state directory's process left is removed, too, if it is the only one.
func DetachKernel(ctx context.Context, volume, stateDir string) (path string, err error) {
	find := func(k *kernel.Kernel) (kernel.Status, error) {
		left, err := findOwn(k, stateDir, volume)
		if !errors.Is(err, kernel.ErrNotAttached) {
			return left, err
		}
		all, err := k.List()
		if err != nil {
			return left, err
		}
		return onlyOne(all, volume)
	}
	return detachKernel(ctx, volume, stateDir, find, func(path string) error {
		if inUse(path) {
			return fmt.Errorf("%s: %w", path, ErrBusy)
		}
		return nil
	})
}

// DiscardKernel is DetachKernel of a device that may be in use: who uses it gets I/O
// errors, and it is kernel.ErrInUse until they let go. There may be none.
func DiscardKernel(ctx context.Context, volume, stateDir string) error {
	find := func(k *kernel.Kernel) (kernel.Status, error) { return findOwn(k, stateDir, volume) }
	_, err := detachKernel(ctx, volume, stateDir, find, func(string) error { return nil })
	if errors.Is(err, kernel.ErrNotAttached) {
		return forgetRecord(stateDir, volume)
	}
	return err
}

func detachKernel(ctx context.Context, volume, stateDir string, find func(*kernel.Kernel) (kernel.Status, error), may func(path string) error) (path string, err error) {
	if path, err := detachFUSE(stateDir, volume); path != "" {
		return path, err
	}
	k := kernel.New()
	left, err := find(k)
	if err != nil {
		return "", fmt.Errorf("volume %s: %w", volume, err)
	}
	path = fmt.Sprintf("/dev/nbd%d", left.Index)
	if err := may(path); err != nil {
		return path, err
	}
	if err := k.Disconnect(ctx, left.Index, left.Backend); err != nil {
		return path, err
	}
	return path, forgetRecord(stateDir, volume)
}

// takeBackTimeout bounds one attempt to serve a device again whose connection
// the kernel gave up. It fails only when another process serves it by then.
const takeBackTimeout = time.Minute
