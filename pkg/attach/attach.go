// Package attach opens volumes for pkg/volume: a device over iSCSI or NVMe/TCP
// (pkg/device), and what its users see of it, a block device of the kernel or an
// NBD socket.
package attach

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp"
	"github.com/csi-mpath/csi-mpath/pkg/volume"
)

// Config is what all volumes of a node have in common.
type Config struct {
	// State is what device.Config.StateDir is.
	State string
	// Initiator is the node's name at the storage where a publication has none.
	Initiator func(backend.Transport) string
	// Face is Kernel, or Sockets.
	Face Face
	// Events is told of transitions; it must not block. It may be nil.
	Events func(volume string, e datapath.Event)
}

// Face makes devices usable.
type Face interface {
	// attach shows a device, or takes over what a process before showed it by.
	attach(ctx context.Context, d *device.Device, srv *nbd.Server) (shown, error)
	// discard removes what a process before left; there may be nothing.
	discard(ctx context.Context, volume, state string) error
	// attachment is how devices are attached; empty: not at all.
	attachment() device.Attachment
}

// shown is a device that is usable.
type shown interface {
	path() string
	// flush writes what is held back above the device.
	flush(ctx context.Context) error
	// leave ends what cannot stay without this process.
	leave(ctx context.Context) error
	// detach ends it; volume.ErrState while it is in use.
	detach(ctx context.Context) error
}

// Opener is a volume.DeviceOpener.
type Opener struct{ cfg Config }

// New makes an opener.
func New(cfg Config) *Opener { return &Opener{cfg: cfg} }

// Open implements volume.DeviceOpener.
func (o *Opener) Open(ctx context.Context, c volume.DeviceConfig) (volume.Device, error) {
	cfg, err := o.config(c)
	if err != nil {
		return nil, err
	}
	dev, err := device.Open(ctx, cfg)
	if err != nil {
		err = classify(err)
		if errors.Is(err, volume.ErrDenied) && unproven(c) {
			err = fmt.Errorf("%w; %s, if it asks for secrets", err, noSecrets(c))
		}
		return nil, err
	}
	srv := nbd.NewServer(map[string]nbd.Export{dev.Name(): dev}, nbd.Config{}, nil)
	s, err := o.cfg.Face.attach(ctx, dev, srv)
	if err != nil {
		ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWithin)
		defer cancel()
		return nil, errors.Join(err, srv.Drain(ended), dev.Close(ended))
	}
	return &opened{dev: dev, srv: srv, shown: s, transport: c.Attached.Transport}, nil
}

// Discard implements volume.DeviceOpener.
func (o *Opener) Discard(ctx context.Context, name string) error {
	return o.cfg.Face.discard(ctx, name, o.cfg.State)
}

// meanings are what errors of the parts mean to a node.
var meanings = []struct{ is, means error }{
	{datapath.ErrMismatch, volume.ErrIdentity},
	{iscsi.ErrAuth, volume.ErrDenied},
	{iscsi.ErrForbidden, volume.ErrDenied},
	{nvmetcp.ErrAuth, volume.ErrDenied},
	{nvmetcp.ErrForbidden, volume.ErrDenied},
	{device.ErrNoReservations, volume.ErrUnsupported},
}

func classify(err error) error {
	for _, m := range meanings {
		if errors.Is(err, m.is) {
			return fmt.Errorf("%w: %w", m.means, err)
		}
	}
	return fmt.Errorf("%w: %w", volume.ErrUnavailable, err)
}

// opened is a volume.Device.
type opened struct {
	dev *device.Device
	srv *nbd.Server
	shown
	transport backend.Transport

	closing sync.Once // Close, or Leave
	end     error
}

// Path implements volume.Device.
func (d *opened) Path() string { return d.path() }

// Status implements volume.Device.
func (d *opened) Status() volume.Status {
	st := d.dev.Status()
	out := volume.Status{Size: int64(st.Size), Usable: st.Usable, Held: st.Held, InDoubt: st.InDoubt, Lost: d.dev.Lost()}
	for _, p := range st.Paths {
		out.Paths = append(out.Paths, volume.PathStatus{Portal: p.Name, Up: p.State == datapath.Live.String(), State: p.State, Cause: p.LastError})
	}
	return out
}

// Flush implements volume.Device.
func (d *opened) Flush(ctx context.Context) error { return d.flush(ctx) }

// Settle implements volume.Device.
func (d *opened) Settle(ctx context.Context) error { return d.dev.Settle(ctx) }

// Rescan implements volume.Device.
func (d *opened) Rescan(ctx context.Context) (int64, error) {
	size, err := d.dev.Rescan(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", volume.ErrUnavailable, err)
	}
	return int64(size), nil
}

// Fail implements volume.Device.
func (d *opened) Fail(error) { d.dev.Fail() }

// Detach implements volume.Device.
func (d *opened) Detach(ctx context.Context) error { return d.detach(ctx) }

// Close implements volume.Device.
func (d *opened) Close(ctx context.Context) error {
	d.closing.Do(func() { d.end = errors.Join(d.srv.Drain(ctx), d.dev.Close(ctx)) })
	return d.end
}

// Leave implements volume.Device: what is not answered comes again to the next
// process.
func (d *opened) Leave(ctx context.Context) error {
	d.dev.Keep()
	return errors.Join(d.leave(ctx), d.Close(ctx))
}
