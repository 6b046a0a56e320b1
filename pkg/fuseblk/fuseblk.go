// Package fuseblk makes an export a block device on a machine without the nbd
// module: a FUSE file system of one file, and a loop device over the file. The
// same requests reach the same lane as through pkg/nbd.
//
// It is for development only. The device lives as long as this process: when it
// is killed, what is mounted on the device gets I/O errors (I8 does not hold), and
// the kernel may wait for this process when it is short of memory.
package fuseblk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/nbd"
)

// Device is an attached export. Its methods may be called from any goroutine.
type Device struct {
	dir    string
	index  int
	p      *port
	served chan struct{} // closed when the FUSE connection has ended, all handlers too
	once   sync.Once
	end    error
}

// Available says why this machine cannot do it; nil when it can.
func Available() error {
	for _, node := range []string{"/dev/fuse", "/dev/loop-control"} {
		if err := unix.Access(node, unix.R_OK|unix.W_OK); err != nil {
			return fmt.Errorf("%s: %w: attaching over FUSE needs root, and the fuse and loop modules", node, err)
		}
	}
	return nil
}

// Attach makes an export a block device, mounted under dir, which belongs to this
// device alone: what a process before left there is taken away. On an error
// nothing stays.
func Attach(ctx context.Context, dir string, e nbd.Export) (*Device, error) {
	if err := Available(); err != nil {
		return nil, err
	}
	if err := Sweep(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p, err := newPort(e)
	if err != nil {
		return nil, err
	}
	d := &Device{dir: dir, index: -1, p: p, served: make(chan struct{})}
	if err := d.mount(); err != nil {
		p.close()
		return nil, err
	}
	if err := within(ctx, d.setup); err != nil {
		return nil, errors.Join(err, d.Close(context.WithoutCancel(ctx)))
	}
	return d, nil
}

// mount begins to serve the file.
func (d *Device) mount() error {
	srv, err := fuse.NewServer(newFileSystem(d.p), d.dir, &fuse.MountOptions{
		Name: "csi-mpath", FsName: "csi-mpath", DirectMountStrict: true, MaxBackground: Depth, MaxWrite: MaxRequest,
		DisableXAttrs: true, Logger: log.New(io.Discard, "", 0),
	})
	if err != nil {
		return fmt.Errorf("mount %s: %w", d.dir, err)
	}
	go func() {
		defer close(d.served)
		srv.Serve()
	}()
	if err := srv.WaitMount(); err != nil {
		return errors.Join(err, unmount(d.dir))
	}
	return nil
}

// setup makes the loop device.
func (d *Device) setup() (err error) {
	i := d.p.export.Info()
	_, block, _ := i.Transmission()
	d.index, err = setup(filepath.Join(d.dir, fileName), block, i.Limits.ReadOnly)
	if err != nil {
		d.index = -1
		return fmt.Errorf("loop device over %s: %w", d.dir, err)
	}
	return nil
}

// Path is the block device's node.
func (d *Device) Path() string { return loopPath(d.index) }

// Gone is closed when nobody can use the device any more.
func (d *Device) Gone() <-chan struct{} { return d.served }

// Resize has the kernel take the export's new size; file systems stay mounted.
func (d *Device) Resize(ctx context.Context) error {
	return within(ctx, func() error {
		var st unix.Stat_t // asks for the attributes again
		if err := unix.Stat(filepath.Join(d.dir, fileName), &st); err != nil {
			return fmt.Errorf("%s: %w", d.dir, err)
		}
		return resize(d.index)
	})
}

// Detach removes the block device when nobody uses it any more, and ends as Close
// does; everything written has been written then. When ctx ends first, the device
// works on for those who use it, and nobody new is served.
func (d *Device) Detach(ctx context.Context) error {
	err := within(ctx, func() error { return release(d.index) })
	if err == nil {
		err = released(ctx, d.index)
	}
	if err != nil {
		return err
	}
	return d.Close(ctx)
}

// Close ends the device now: whoever still uses it gets I/O errors. It returns
// when every request is back, or ctx ends.
func (d *Device) Close(ctx context.Context) error {
	d.once.Do(func() {
		var errs []error
		if d.index >= 0 && bound(d.index) {
			errs = append(errs, within(ctx, func() error { return release(d.index) }))
		}
		d.end = errors.Join(append(errs, unmount(d.dir))...)
		d.p.close()
	})
	select {
	case <-d.served:
	case <-ctx.Done():
		return errors.Join(d.end, fmt.Errorf("%s: requests are still unanswered: %w", d.dir, ctx.Err()))
	}
	if err := os.Remove(d.dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return errors.Join(d.end, err)
	}
	return d.end
}

// Sweep takes away what a dead process left at dir: its loop devices, as soon as
// nobody uses them, and its mounts. The caller knows that the process is dead.
func Sweep(dir string) error {
	var errs []error
	for _, index := range stale(filepath.Join(dir, fileName)) {
		errs = append(errs, release(index))
	}
	errs = append(errs, unmount(dir))
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// unmount takes every FUSE mount at dir away. Its connection is aborted first, so
// that nobody waits for a server that is no more, also where a loop device keeps
// the file open.
func unmount(dir string) error {
	for range maxStale {
		switch err := unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); {
		case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT):
			return nil // no mount, no directory
		case err != nil:
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
	}
	return fmt.Errorf("%s: more than %d mounts on top of each other", dir, maxStale)
}

// within runs what may wait for the device, and leaves it behind when ctx ends.
func within(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the kernel has not answered: %w", ctx.Err())
	}
}
