package kernel

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reconnect gives a device, whose server went away, its connections back, and
// gets it ready as Attach does. The device must have the backend identifier of
// o; Size must not be smaller than the device. While an old connection is alive
// it waits for its death, until ctx ends (ErrAlive).
//
// What the old server left unanswered is sent again once it is older than the
// device's I/O timeout. On an error the device keeps waiting for a server.
func (k *Kernel) Reconnect(ctx context.Context, index int, o Options, serve Serve) (*Device, error) {
	o.Index = index
	if err := o.fill(); err != nil {
		return nil, err
	}
	s, err := k.own(index, o.Backend)
	if err != nil {
		return nil, err
	}
	if s.Size > o.Size {
		return nil, fmt.Errorf("nbd%d: has %d bytes, but its volume has %d: the volume is another one, or shrank", index, s.Size, o.Size)
	}
	d := k.device(index, &o)
	if err := d.giveBack(ctx, &o, serve); err != nil {
		d.cut()
		return nil, err
	}
	if d.Warnings, err = k.tune(ctx, index, &o); err != nil {
		d.cut()
		return nil, err
	}
	return d, nil
}

// giveBack offers connections until the kernel has taken all: it takes one only
// in the place of a dead one, and does not say which it dropped.
func (d *Device) giveBack(ctx context.Context, o *Options, serve Serve) error {
	err := poll(ctx, func() (bool, error) {
		taken, err := d.k.offer(ctx, d.Index, o, o.Connections-len(d.servers))
		d.start(taken, serve)
		return len(d.servers) == o.Connections, err
	})
	if err != nil && errors.Is(err, ctx.Err()) {
		return fmt.Errorf("nbd%d: %d of %d connections given back: %w: %w", d.Index, len(d.servers), o.Connections, ErrAlive, err)
	}
	return err
}

// offer gives n connections to the kernel and returns those it has taken.
func (k *Kernel) offer(ctx context.Context, index int, o *Options, n int) ([]*pair, error) {
	ctx, cancel := context.WithTimeout(ctx, offerWithin)
	defer cancel()
	// No process is forked until it is known which were taken (see giveUp).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	pairs, err := newPairs(n)
	if err != nil {
		return nil, err
	}
	m := o.reconnect(index)
	m.sockets = sockets(pairs)
	var taken []*pair
	err = k.do(ctx, fmt.Sprintf("reconnect nbd%d", index), func() (err error) {
		taken, err = k.handOver(m, pairs)
		return err
	}, func(error) { drop(pairs) })
	if errors.Is(err, unix.EINVAL) {
		// Another backend identifier, or detached meanwhile: say which.
		if _, why := k.own(index, o.Backend); why != nil {
			return nil, why
		}
	}
	if err != nil {
		return nil, err
	}
	return taken, nil
}

// handOver sends m, which names pairs, and returns those the kernel has taken.
func (k *Kernel) handOver(m message, pairs []*pair) ([]*pair, error) {
	_, err := k.exchange(m)
	taken, refused := giveUp(pairs)
	drop(refused)
	if errors.Is(err, unix.ENOSPC) {
		err = nil // no connection is dead yet
	}
	if err != nil {
		drop(taken)
	}
	return taken, err
}
