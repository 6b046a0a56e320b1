package attach

import (
	"context"
	"errors"
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/kernel"
	"github.com/csi-mpath/csi-mpath/pkg/program"
	"github.com/csi-mpath/csi-mpath/pkg/volume"
)

// Kernel makes devices block devices: /dev/nbdN, or, only for development, loop
// devices over FUSE, which end with the process.
func Kernel(as device.Attachment) Face { return kernelFace{as} }

type kernelFace struct{ as device.Attachment }

func (f kernelFace) attachment() device.Attachment { return f.as }

func (kernelFace) attach(ctx context.Context, d *device.Device, srv *nbd.Server) (shown, error) {
	b, err := d.Attach(ctx, srv, kernel.FreeIndex)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", volume.ErrUnavailable, err)
	}
	return &blockDevice{b}, nil
}

func (kernelFace) discard(ctx context.Context, name, state string) error {
	return detached(device.DiscardKernel(ctx, name, state))
}

// detached is nil for a device that is gone.
func detached(err error) error {
	if errors.Is(err, kernel.ErrNotAttached) || errors.Is(err, kernel.ErrNoModule) {
		return nil
	}
	if errors.Is(err, device.ErrBusy) || errors.Is(err, kernel.ErrInUse) {
		return fmt.Errorf("%w: %w", volume.ErrState, err)
	}
	return err
}

// blockDevice is a device in the kernel.
type blockDevice struct{ *device.BlockDevice }

func (b *blockDevice) path() string { return b.Path() }

// flush is a program's work: a thread of this process that waits for the device
// would keep a killed process from ending, which serves that device.
func (b *blockDevice) flush(ctx context.Context) error {
	r, err := program.Run(ctx, program.Call{Name: "sync", Args: []string{"--data", b.Path()}})
	if err != nil {
		return err
	}
	return r.Failed("sync")
}

func (b *blockDevice) leave(ctx context.Context) error { return b.Leave(ctx) }

func (b *blockDevice) detach(ctx context.Context) error { return detached(b.Detach(ctx)) }
