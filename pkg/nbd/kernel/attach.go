package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Serve takes the server's end of a connection which the kernel uses from now
// on. It must not block: requests come at once, and attaching waits for some of
// the answers. It closes the connection at the end.
type Serve func(server net.Conn)

// Device is an attached device. Its methods may be called from any goroutine.
type Device struct {
	k       *Kernel
	Index   int
	Path    string // "/dev/nbd3"
	Backend string
	// Warnings name what this kernel cannot do, and what that costs.
	Warnings []string
	// servers are our ends of the connections; they never change.
	servers []net.Conn
}

// Attach makes a device, and returns when it answers with the right size. The
// kernel chooses a free one where Index is FreeIndex, and makes more when all
// are in use. On an error nothing stays attached.
func (k *Kernel) Attach(ctx context.Context, o Options, serve Serve) (*Device, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	if s, err := k.Find(o.Backend); err == nil {
		return nil, fmt.Errorf("nbd%d: backend %q: %w", s.Index, o.Backend, ErrExists)
	} else if !errors.Is(err, ErrNotAttached) {
		return nil, err
	}
	pairs, err := newPairs(o.Connections)
	if err != nil {
		return nil, err
	}
	index, err := k.connect(ctx, &o, pairs)
	if err != nil {
		return nil, explainBusy(&o, err)
	}
	d := k.device(index, &o)
	d.start(pairs, serve)
	if err := d.settle(ctx, &o); err != nil {
		return nil, errors.Join(err, d.cleanup(ctx))
	}
	return d, nil
}

func (k *Kernel) device(index int, o *Options) *Device {
	return &Device{k: k, Index: index, Path: k.path(index), Backend: o.Backend}
}

func (d *Device) start(taken []*pair, serve Serve) {
	for _, p := range taken {
		d.servers = append(d.servers, p.server)
		serve(p.server)
	}
}

// connect has the kernel take the pairs. Whatever happens, our descriptors of
// its ends are closed when its call ends, not earlier (see giveUp).
func (k *Kernel) connect(ctx context.Context, o *Options, pairs []*pair) (int, error) {
	m := o.connect()
	m.sockets = sockets(pairs)
	var reply message
	err := k.do(ctx, "attach a device", func() (err error) {
		reply, err = k.exchange(m)
		giveUp(pairs) // a success means that it took all
		if err == nil && reply.index == nil {
			err = errors.New("nbd: the kernel does not say which device it attached")
		}
		if err != nil {
			drop(pairs)
		}
		return err
	}, func(err error) {
		if err == nil { // nobody waits for it any more
			_ = k.undo(int(*reply.index), pairs)
		}
	})
	if err != nil {
		return 0, err
	}
	return int(*reply.index), nil
}

// undo takes back a connect, in the goroutine of a call.
func (k *Kernel) undo(index int, pairs []*pair) error {
	drop(pairs)
	_, err := k.exchange(message{cmd: cmdDisconnect, index: new(uint32(index))})
	return err
}

func explainBusy(o *Options, err error) error {
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("nbd%d is in use: choose another index, or let the kernel choose: %w", o.Index, err)
	}
	return err
}

// settle sets the device up and waits until it answers.
func (d *Device) settle(ctx context.Context, o *Options) (err error) {
	if d.Warnings, err = d.k.tune(ctx, d.Index, o); err != nil {
		return err
	}
	s, err := d.k.look(d.Index)
	if err != nil {
		return err
	}
	if s.Backend == "" {
		d.Warnings = append(d.Warnings, fmt.Sprintf(
			"nbd%d: this kernel (before 5.14) knows no backend identifiers: after a restart the device is not recognized", d.Index))
	}
	return d.k.answers(ctx, d.Index, o.Size)
}

// cleanup detaches a device that was not finished, also when ctx has ended.
func (d *Device) cleanup(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupWithin)
	defer cancel()
	return d.k.disconnect(ctx, d.Index, d.servers)
}

// Resize tells the kernel a new size, bytes; file systems stay mounted. The
// server must know it already. A smaller one is refused. It waits for the
// requests in flight.
func (d *Device) Resize(ctx context.Context, size uint64) error {
	return d.k.Resize(ctx, d.Index, d.Backend, size)
}

// Resize is Device.Resize for a device by its index and backend identifier.
func (k *Kernel) Resize(ctx context.Context, index int, backend string, size uint64) error {
	s, err := k.own(index, backend)
	switch {
	case err != nil:
		return err
	case size == s.Size:
		return nil
	case size < s.Size || size%512 != 0:
		return fmt.Errorf("nbd%d: cannot be resized from %d to %d bytes: a device only grows, by whole sectors", index, s.Size, size)
	}
	if err := k.reconfigure(ctx, message{index: new(uint32(index)), backend: backend, size: new(size)}); err != nil {
		return err
	}
	if s, err = k.own(index, backend); err == nil && s.Size != size {
		err = fmt.Errorf("nbd%d: has %d bytes after its resize to %d", index, s.Size, size)
	}
	return err
}

// SetDeadConnTimeout changes how long requests wait for a server that went
// away; whole seconds, at least one. A node that shuts down makes it short.
func (d *Device) SetDeadConnTimeout(ctx context.Context, t time.Duration) error {
	if t < time.Second || t%time.Second != 0 {
		return fmt.Errorf("nbd%d: dead connection timeout %v is no positive number of seconds", d.Index, t)
	}
	if _, err := d.k.own(d.Index, d.Backend); err != nil {
		return err
	}
	return d.k.reconfigure(ctx, message{index: new(uint32(d.Index)), backend: d.Backend, deadConnects: seconds(t)})
}

func (k *Kernel) reconfigure(ctx context.Context, m message) error {
	m.cmd = cmdReconfigure
	return k.do(ctx, fmt.Sprintf("reconfigure nbd%d", *m.index), func() error {
		_, err := k.exchange(m)
		return err
	}, nil)
}
