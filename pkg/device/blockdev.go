package device

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/durable"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/kernel"
)

// backendPrefix begins the identifier of every kernel device of ours: only who
// names the right one is given a device back (I1 towards the kernel).
const backendPrefix = "csi-mpath:"

// ErrBusy: the block device is mounted or held by somebody.
var ErrBusy = errors.New("the block device is in use: unmount it first")

// BlockDevice is a volume attached to the kernel.
type BlockDevice struct {
	// dev is replaced when the kernel got a new connection; a stale one only
	// knows fewer of them.
	dev  atomic.Pointer[kernel.Device]
	k    *kernel.Kernel
	gone chan struct{} // closed when the kernel said goodbye
	once sync.Once
	// Found: it was there already, left by a process before.
	Found bool
}

// AttachKernel makes the volume a block device, or takes over the one that a
// process before left: its unanswered requests come again. srv serves the
// connection. index is kernel.FreeIndex or the device wanted.
func (d *Device) AttachKernel(ctx context.Context, srv *nbd.Server, index int) (*BlockDevice, error) {
	k := kernel.New()
	if err := k.Available(ctx); err != nil {
		return nil, fmt.Errorf("volume %s: %w", d.cfg.Name, err)
	}
	b := &BlockDevice{k: k, gone: make(chan struct{})}
	o := kernel.For(backendPrefix+durable.FileName(d.cfg.Name), d.Info())
	var serve kernel.Serve
	serve = func(c net.Conn) {
		go func() {
			err := srv.ServeConn(context.Background(), c, d)
			switch {
			case srv.Draining(): // our own doing
			case err == nil:
				b.once.Do(func() { close(b.gone) })
			case errors.Is(err, nbd.ErrHungUp):
				d.takeBack(b, serve)
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
	b.dev.Store(dev)
	d.onGrowth(b)
	return b, nil
}

// takeBack gives the kernel a new connection when it gave the old one up: the
// device is still there, and what was sent to us comes again (I5). All of the
// old connection's requests are back.
func (d *Device) takeBack(b *BlockDevice, serve kernel.Serve) {
	ctx, cancel := context.WithTimeout(context.Background(), takeBackTimeout)
	defer cancel()
	o := kernel.For(backendPrefix+durable.FileName(d.cfg.Name), d.Info())
	left, err := b.k.Find(o.Backend)
	if err == nil {
		var dev *kernel.Device
		if dev, err = b.k.Reconnect(ctx, left.Index, o, serve); err == nil {
			b.dev.Store(dev)
		}
	}
	if errors.Is(err, kernel.ErrNotAttached) || errors.Is(err, kernel.ErrForeign) {
		b.once.Do(func() { close(b.gone) })
	}
}

// onGrowth tells the kernel of a larger size, now and whenever it changes.
func (d *Device) onGrowth(b *BlockDevice) {
	d.resize.Store(b)
	d.resizeKernel()
}

// resizeKernel runs on a goroutine of its own when called from events.
func (d *Device) resizeKernel() {
	b := d.resize.Load()
	if b == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), resizeTimeout)
	defer cancel()
	if size, _, _ := d.info.Load().Transmission(); b.dev.Load() != nil {
		_ = b.dev.Load().Resize(ctx, size)
	}
}

// Path is the device node.
func (b *BlockDevice) Path() string { return b.dev.Load().Path }

// Warnings are what this kernel cannot do, and what that costs.
func (b *BlockDevice) Warnings() []string { return b.dev.Load().Warnings }

// Gone is closed when somebody detached the device.
func (b *BlockDevice) Gone() <-chan struct{} { return b.gone }

// Detach removes the block device if nobody uses it, else ErrBusy.
func (b *BlockDevice) Detach(ctx context.Context) error {
	if inUse(b.dev.Load().Path) {
		return fmt.Errorf("%s: %w", b.dev.Load().Path, ErrBusy)
	}
	return b.dev.Load().Disconnect(ctx)
}

// inUse reports whether a block device is mounted or claimed otherwise.
func inUse(path string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if err != nil {
		return errors.Is(err, unix.EBUSY)
	}
	_ = unix.Close(fd)
	return false
}

// DetachKernel removes a volume's block device, whoever serves it, and the
// record of what the volume was, unless a process holds the volume: that one
// clears up itself. The in-flight table stays: it is about the target.
func DetachKernel(ctx context.Context, volume, stateDir string) (path string, err error) {
	k := kernel.New()
	left, err := k.Find(backendPrefix + durable.FileName(volume))
	if err != nil {
		return "", fmt.Errorf("volume %s: %w", volume, err)
	}
	path = fmt.Sprintf("/dev/nbd%d", left.Index)
	if inUse(path) {
		return path, fmt.Errorf("%s: %w", path, ErrBusy)
	}
	if err := k.Disconnect(ctx, left.Index, left.Backend); err != nil {
		return path, err
	}
	return path, forgetRecord(stateDir, volume)
}

// resizeTimeout bounds one resize of a block device.
const resizeTimeout = 10 * time.Second

// takeBackTimeout bounds one attempt to serve a device again whose connection
// the kernel gave up. It fails only when another process serves it by then.
const takeBackTimeout = time.Minute
