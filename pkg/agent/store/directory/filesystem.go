package directory

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// cloner makes dst share all bytes of src. Tests have one that copies.
type cloner func(dst, src *os.File) error

// reflink is FICLONE (ioctl_ficlone(2)). The kernel writes back what is cached of
// src first, and lets nobody write to it meanwhile.
func reflink(dst, src *os.File) error {
	return uninterrupted(func() error { return unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) })
}

// fallocate takes space and makes the file longer.
func fallocate(f *os.File, off, n int64) error {
	return uninterrupted(func() error { return unix.Fallocate(int(f.Fd()), 0, off, n) })
}

func uninterrupted(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// probe reports whether the file system can clone, and fails if it cannot take
// space where that is asked for. Empty files tell: a full disk must not keep an
// agent from serving what is there. One that is too full for that is taken to
// have reflinks; a copy that cannot be made says so then.
func (s *Store) probe() (cloning bool, err error) {
	var two [2]*os.File
	for i := range two {
		f, err := os.CreateTemp(s.dir, ".tmp-probe-*") // what durable.Sweep removes
		if errors.Is(space(err), backend.ErrNoSpace) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		defer func() { _ = errors.Join(f.Close(), os.Remove(f.Name())) }()
		two[i] = f
	}
	err = s.clone(two[1], two[0])
	cloning = err == nil || errors.Is(space(err), backend.ErrNoSpace)
	if s.prealloc {
		err = space(fallocate(two[1], 0, step))
		if err != nil && !errors.Is(err, backend.ErrNoSpace) {
			return false, fmt.Errorf("the file system cannot take space beforehand (%w): switch that off", err)
		}
	}
	return cloning, nil
}

// idle fails with backend.ErrInUse while somebody has an object's file open for
// writing: a target, a loop device. A lease for reading is only given while nobody
// has (fcntl(2), F_SETLEASE); file systems without leases cannot tell.
func (s *Store) idle(name string) error {
	path, err := s.path(name, imageSuffix)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0) //nolint:gosec // path checked the name
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // gives the lease back
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); errors.Is(err, unix.EAGAIN) {
		return &backend.InUse{Object: name, Why: filepath.Base(path) + " is open for writing"}
	}
	return nil
}
