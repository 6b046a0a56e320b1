package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Kernel is the kernel's NBD client. Its methods may be called from any
// goroutine, and return when their context ends.
type Kernel struct {
	sys, dev string // mount points of sysfs and devtmpfs

	// What blocks in system calls; tests have twins of them.
	exchange func(message) (message, error)
	node     node

	// calls holds a token for each blocking call that goes on.
	calls chan struct{}
}

// New is the running kernel's client.
func New() *Kernel {
	// The runtime forks once, without ForkLock, to see whether that gives process
	// descriptors. It shall do so now, not when offer relies on the lock.
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Release()
	}
	return &Kernel{
		sys: "/sys", dev: "/dev", exchange: exchange, node: blockNode{},
		calls: make(chan struct{}, MaxCalls),
	}
}

// Available says why the kernel's client cannot be used here, and the way out;
// nil when it can.
func (k *Kernel) Available(ctx context.Context) error {
	err := k.do(ctx, "ask for the nbd family", func() error {
		_, err := k.exchange(message{cmd: cmdStatus, index: new(uint32(0))})
		return err
	}, nil)
	// A device 0 that does not exist is no reason.
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENODEV) {
		return err
	}
	return errors.Join(capable(), k.writable())
}

// capable checks for CAP_SYS_ADMIN.
func capable() error {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := unix.Capget(&h, &d[0]); err != nil {
		return fmt.Errorf("nbd: read own capabilities: %w", err)
	}
	if d[0].Effective&(1<<unix.CAP_SYS_ADMIN) == 0 {
		return ErrNotPermitted
	}
	return nil
}

func (k *Kernel) writable() error {
	var s unix.Statfs_t
	if err := unix.Statfs(k.sys, &s); err != nil {
		return fmt.Errorf("nbd: statfs %s: %w", k.sys, err)
	}
	if s.Flags&unix.ST_RDONLY != 0 {
		return ErrNotPermitted
	}
	return nil
}

// do runs fn, which may hang in the kernel for good, in a goroutine of its
// own, and leaves it behind when ctx ends. late, which may be nil, is then
// called when fn ends at last.
func (k *Kernel) do(ctx context.Context, what string, fn func() error, late func(error)) error {
	select {
	case k.calls <- struct{}{}:
	default:
		return fmt.Errorf("nbd: cannot %s: %d calls to the kernel hang already", what, MaxCalls)
	}
	done, left := make(chan error), make(chan struct{})
	go func() {
		defer func() { <-k.calls }()
		err := fn()
		select {
		case done <- err: // not after left is closed: nobody receives then
		case <-left:
			if late != nil {
				late(err)
			}
		}
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		close(left)
		return fmt.Errorf("nbd: %s: the kernel has not answered: %w", what, ctx.Err())
	}
}

// poll calls done until it is true, ever less often, or ctx ends.
func poll(ctx context.Context, done func() (bool, error)) error {
	pause := firstPoll
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		if ok, err := done(); ok || err != nil {
			return err
		}
		timer.Reset(pause)
		pause = min(2*pause, lastPoll)
	}
}

// Path is the device's node.
func (k *Kernel) path(index int) string {
	return filepath.Join(k.dev, fmt.Sprint("nbd", index))
}
