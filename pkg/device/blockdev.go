package device

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

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
	dev  *kernel.Device
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
	o := kernel.For(backendPrefix+fileName(d.cfg.Name), d.Info())
	serve := func(c net.Conn) {
		go func() {
			// nil is the kernel's goodbye; a drain or a cut is our own doing.
			if err := srv.ServeConn(context.Background(), c, d); err == nil && !srv.Draining() {
				b.once.Do(func() { close(b.gone) })
			}
		}()
	}
	left, err := k.Find(o.Backend)
	switch {
	case err == nil:
		b.Found = true
		b.dev, err = k.Reconnect(ctx, left.Index, o, serve)
	case errors.Is(err, kernel.ErrNotAttached):
		o.Index = index
		b.dev, err = k.Attach(ctx, o, serve)
	}
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w", d.cfg.Name, err)
	}
	d.onGrowth(b)
	return b, nil
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
	if size, _, _ := d.info.Load().Transmission(); b.dev != nil {
		_ = b.dev.Resize(ctx, size)
	}
}

// Path is the device node.
func (b *BlockDevice) Path() string { return b.dev.Path }

// Warnings are what this kernel cannot do, and what that costs.
func (b *BlockDevice) Warnings() []string { return b.dev.Warnings }

// Gone is closed when somebody detached the device.
func (b *BlockDevice) Gone() <-chan struct{} { return b.gone }

// Detach removes the block device if nobody uses it, else ErrBusy.
func (b *BlockDevice) Detach(ctx context.Context) error {
	if inUse(b.dev.Path) {
		return fmt.Errorf("%s: %w", b.dev.Path, ErrBusy)
	}
	return b.dev.Disconnect(ctx)
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

// DetachKernel removes a volume's block device, whoever serves it.
func DetachKernel(ctx context.Context, volume string) (path string, err error) {
	k := kernel.New()
	left, err := k.Find(backendPrefix + fileName(volume))
	if err != nil {
		return "", fmt.Errorf("volume %s: %w", volume, err)
	}
	path = fmt.Sprintf("/dev/nbd%d", left.Index)
	if inUse(path) {
		return path, fmt.Errorf("%s: %w", path, ErrBusy)
	}
	return path, k.Disconnect(ctx, left.Index, left.Backend)
}

// resizeTimeout bounds one resize of a block device.
const resizeTimeout = 10 * time.Second
