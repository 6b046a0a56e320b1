package device

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/nbd"
)

// Attachment is how a volume becomes a block device.
type Attachment string

// The attachments. FUSE is for development, on machines without nbd: its device
// ends with the process (I8 does not hold).
const (
	AttachNBD  Attachment = "nbd" // also what empty means
	AttachFUSE Attachment = "fuse"
)

// ErrBusy: the block device is mounted or held by somebody.
var ErrBusy = errors.New("the block device is in use: unmount it first")

// BlockDevice is a volume attached to the kernel.
type BlockDevice struct {
	at   attachment
	gone chan struct{} // closed when the kernel said goodbye
	once sync.Once
	// Found: it was there already, left by a process before.
	Found bool
}

// attachment is one of them, at work.
type attachment interface {
	path() string
	warnings() []string
	// resize tells the kernel a new size, bytes.
	resize(ctx context.Context, size uint64) error
	// detach removes a device that nobody uses.
	detach(ctx context.Context) error
	// leave ends what cannot stay without this process.
	leave(ctx context.Context) error
	// stays: the device outlives this process.
	stays() bool
}

// Attach makes the volume a block device, as its configuration says. srv serves
// the connection of an nbd device; index is kernel.FreeIndex or the one wanted.
func (d *Device) Attach(ctx context.Context, srv *nbd.Server, index int) (*BlockDevice, error) {
	if d.cfg.Attach == AttachFUSE {
		return d.attachFUSE(ctx)
	}
	return d.AttachKernel(ctx, srv, index)
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
	size, _, _ := d.info.Load().Transmission()
	_ = b.at.resize(ctx, size)
}

// Path is the device node.
func (b *BlockDevice) Path() string { return b.at.path() }

// Warnings are what this kernel cannot do, and what that costs.
func (b *BlockDevice) Warnings() []string { return b.at.warnings() }

// Gone is closed when somebody detached the device.
func (b *BlockDevice) Gone() <-chan struct{} { return b.gone }

// Stays reports whether the device outlives this process.
func (b *BlockDevice) Stays() bool { return b.at.stays() }

// Detach removes the block device if nobody uses it, else ErrBusy.
func (b *BlockDevice) Detach(ctx context.Context) error {
	if inUse(b.Path()) {
		return fmt.Errorf("%s: %w", b.Path(), ErrBusy)
	}
	return b.at.detach(ctx)
}

// Leave ends this process's part in the device. One that does not stay gives
// whoever still uses it I/O errors. Not after Detach.
func (b *BlockDevice) Leave(ctx context.Context) error { return b.at.leave(ctx) }

// inUse reports whether a block device is mounted or claimed otherwise.
func inUse(path string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if err != nil {
		return errors.Is(err, unix.EBUSY)
	}
	_ = unix.Close(fd)
	return false
}

// resizeTimeout bounds one resize of a block device.
const resizeTimeout = 10 * time.Second
