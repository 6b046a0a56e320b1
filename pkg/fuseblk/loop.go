package fuseblk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// loopPath is a loop device's node.
func loopPath(index int) string { return "/dev/loop" + strconv.Itoa(index) }

// setup makes a free loop device one over a file.
func setup(file string, block uint32, readOnly bool) (index int, err error) {
	mode, flags := unix.O_RDWR, uint32(unix.LO_FLAGS_DIRECT_IO)
	if readOnly {
		mode, flags = unix.O_RDONLY, flags|unix.LO_FLAGS_READ_ONLY
	}
	backing, err := unix.Open(file, mode|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open %s: %w", file, err)
	}
	defer func() { _ = unix.Close(backing) }()
	c := unix.LoopConfig{Fd: uint32(backing), Size: block, Info: unix.LoopInfo64{Flags: flags}}
	copy(c.Info.File_name[:len(c.Info.File_name)-1], file) // for losetup's table
	for range maxTries {
		if index, err = freeLoop(); err != nil {
			return 0, err
		}
		if err = withLoop(index, mode, func(fd int) error { return unix.IoctlLoopConfigure(fd, &c) }); !errors.Is(err, unix.EBUSY) {
			return index, err
		}
	}
	return 0, err
}

// freeLoop finds a loop device that nobody uses, and makes one if there is none.
func freeLoop() (int, error) {
	fd, err := unix.Open("/dev/loop-control", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open /dev/loop-control: %w: the kernel has no loop devices here", err)
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.IoctlRetInt(fd, unix.LOOP_CTL_GET_FREE)
}

// withLoop opens a loop device for one call.
func withLoop(index, mode int, f func(fd int) error) error {
	fd, err := unix.Open(loopPath(index), mode|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", loopPath(index), err)
	}
	if err = f(fd); err != nil {
		err = fmt.Errorf("%s: %w", loopPath(index), err)
	}
	return errors.Join(err, unix.Close(fd))
}

// release lets go of the file: at once, or, where the loop device is mounted or
// open, when that ends.
func release(index int) error {
	err := withLoop(index, unix.O_RDONLY, func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0) })
	if errors.Is(err, unix.ENXIO) {
		return nil // it has none
	}
	return err
}

// resize has the loop device take its file's size.
func resize(index int) error {
	return withLoop(index, unix.O_RDONLY, func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_SET_CAPACITY, 0) })
}

func sysLoop(index int, name string) string {
	return filepath.Join("/sys/block", "loop"+strconv.Itoa(index), name)
}

// bound reports whether the loop device has a file.
func bound(index int) bool {
	_, err := os.Stat(sysLoop(index, "loop/backing_file"))
	return err == nil
}

// released waits until a loop device has no file.
func released(ctx context.Context, index int) error {
	t := time.NewTicker(goneCheck)
	defer t.Stop()
	for bound(index) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is still in use: %w", loopPath(index), ctx.Err())
		case <-t.C:
		}
	}
	return nil
}

// stale are the loop devices over a file of which the server is dead. Its mount is
// still there: without it, the kernel would not know the file's path any more.
func stale(file string) (found []int) {
	entries, _ := filepath.Glob("/sys/block/loop*/loop/backing_file") // the pattern is right
	for _, e := range entries {
		name, err := os.ReadFile(e)
		if err != nil || strings.TrimSuffix(string(name), "\n") != file {
			continue // released meanwhile, or of somebody else
		}
		index, err := strconv.Atoi(strings.TrimPrefix(strings.Split(e, "/")[3], "loop"))
		if err != nil {
			continue
		}
		err = withLoop(index, unix.O_RDONLY|unix.O_NONBLOCK, func(fd int) error {
			_, err := unix.IoctlLoopGetStatus64(fd) // asks for the file's attributes
			return err
		})
		if errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED) {
			found = append(found, index)
		}
	}
	return found
}
