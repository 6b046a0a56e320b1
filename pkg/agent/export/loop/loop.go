// Package loop makes block devices of files, for the kernel's targets: LIO cannot
// let a file grow while it serves it, and nvmet gives a file the block size of its
// file system. A device is found again by a mark that it carries, whoever attached
// it, so nothing about it is written down.
package loop

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Devices are the loop devices of a machine that are ours. A mark is 1..40 bytes.
type Devices interface {
	// Attach is the device with this mark over the file, which is attached if there
	// is none. It has sectors of 512 bytes and goes around the page cache where the
	// file system lets it.
	Attach(ctx context.Context, mark, file string) (device string, err error)
	// Resize makes the device as long as its file, if there is one.
	Resize(ctx context.Context, mark string) error
	// Release detaches it; there may be none.
	Release(ctx context.Context, mark string) error
}

// Device is the block device of a backing: itself, or one over the file.
func Device(ctx context.Context, d Devices, mark, path string, block bool) (string, error) {
	if block {
		return path, nil
	}
	return d.Attach(ctx, mark, path)
}

// Kernel are the kernel's. mu is held while a device is looked for and attached.
type Kernel struct{ mu sync.Mutex }

// prefix of the marks, in the field for a name that the kernel keeps unread.
const prefix = "csi-mpath:"

// Attach implements Devices.
func (k *Kernel) Attach(ctx context.Context, mark, file string) (string, error) {
	if err := check(ctx, mark); err != nil {
		return "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	back, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = back.Close() }()
	d, err := find(mark)
	if err != nil {
		return "", err
	}
	if d != nil {
		defer func() { _ = d.Close() }()
		return d.Name(), errors.Join(over(d, back), keep(d))
	}
	return attach(mark, back)
}

// Resize implements Devices.
func (k *Kernel) Resize(ctx context.Context, mark string) error {
	return k.with(ctx, mark, unix.LOOP_SET_CAPACITY)
}

// Release implements Devices.
func (k *Kernel) Release(ctx context.Context, mark string) error {
	return k.with(ctx, mark, unix.LOOP_CLR_FD)
}

// with asks the kernel something about the device with the mark, if there is one.
func (k *Kernel) with(ctx context.Context, mark string, request uint) error {
	if err := check(ctx, mark); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	d, err := find(mark)
	if err != nil || d == nil {
		return err
	}
	defer func() { _ = d.Close() }()
	if err := unix.IoctlSetInt(int(d.Fd()), request, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("%s: %w", d.Name(), err)
	}
	return nil
}

func check(ctx context.Context, mark string) error {
	if mark == "" || len(prefix)+len(mark) >= unix.LO_NAME_SIZE {
		return fmt.Errorf("%w: %q cannot mark a loop device", backend.ErrInvalid, mark)
	}
	return ctx.Err()
}

// find opens the device with a mark; nil if there is none. It opens for reading: a
// device that was open for writing is looked into by udev when it is closed, and
// that is what keeps a Release from being done at once.
func find(mark string) (*os.File, error) {
	all, err := filepath.Glob("/sys/block/loop*/loop")
	if err != nil {
		return nil, err
	}
	for _, dir := range all {
		d, err := os.OpenFile("/dev/"+filepath.Base(filepath.Dir(dir)), os.O_RDONLY|syscall.O_CLOEXEC, 0)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) {
			continue // it went meanwhile
		}
		if err != nil {
			return nil, err
		}
		if info, err := unix.IoctlLoopGetStatus64(int(d.Fd())); err == nil && unix.ByteSliceToString(info.File_name[:]) == prefix+mark {
			return d, nil
		}
		_ = d.Close()
	}
	return nil, nil
}

func open(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDWR|syscall.O_CLOEXEC, 0) }

// keep takes back a Release that waits for the last one who has the device open:
// when he closes it, the device would go, and its name be another volume's.
func keep(d *os.File) error {
	info, err := unix.IoctlLoopGetStatus64(int(d.Fd()))
	if err != nil {
		return fmt.Errorf("%s: %w", d.Name(), err)
	}
	if info.Flags&unix.LO_FLAGS_AUTOCLEAR == 0 {
		return nil
	}
	info.Flags &^= unix.LO_FLAGS_AUTOCLEAR
	if err := unix.IoctlLoopSetStatus64(int(d.Fd()), info); err != nil {
		return fmt.Errorf("%w: %s is being detached: %w", backend.ErrBusy, d.Name(), err)
	}
	return nil
}

// over checks that a device is over the file.
func over(d, back *os.File) error {
	info, err := unix.IoctlLoopGetStatus64(int(d.Fd()))
	if err != nil {
		return fmt.Errorf("%s: %w", d.Name(), err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(back.Fd()), &st); err != nil {
		return fmt.Errorf("%s: %w", back.Name(), err)
	}
	if info.Inode != st.Ino {
		return fmt.Errorf("%w: %s has our mark for %s, but is over another file: detach it with losetup -d", backend.ErrConflict, d.Name(), back.Name())
	}
	return nil
}

// attach takes a free device.
func attach(mark string, back *os.File) (string, error) {
	control, err := open("/dev/loop-control")
	if err != nil {
		return "", fmt.Errorf("%w (is the kernel module loop loaded?)", err)
	}
	defer func() { _ = control.Close() }()
	for range attempts {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", fmt.Errorf("a free loop device: %w", err)
		}
		path := fmt.Sprint("/dev/loop", n)
		if err := configure(path, mark, back); !errors.Is(err, unix.EBUSY) {
			return path, err
		}
	}
	return "", fmt.Errorf("%w: others took %d loop devices that were free", backend.ErrBusy, attempts)
}

func configure(path, mark string, back *os.File) error {
	d, err := open(path)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	c := unix.LoopConfig{Fd: uint32(back.Fd()), Size: sectorSize}
	c.Info.Flags = unix.LO_FLAGS_DIRECT_IO
	copy(c.Info.File_name[:], prefix+mark)
	if err := unix.IoctlLoopConfigure(int(d.Fd()), &c); err != nil {
		return fmt.Errorf("%s over %s: %w", path, back.Name(), err)
	}
	return nil
}
