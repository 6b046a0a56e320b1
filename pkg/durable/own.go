package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrLocked: somebody else holds the lock.
var ErrLocked = errors.New("locked by another process")

// Lock takes an exclusive lock on path, which is made if it is missing, and ends
// with the process. With try it does not wait, and may return ErrLocked. Its holder
// may remove the file: who waited for it locks the next one.
func Lock(path string, try bool) (unlock func(), err error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600) //nolint:gosec // a file of the caller's own
		if err != nil {
			return nil, err
		}
		if err := flock(f, try); err != nil {
			_ = f.Close()
			return nil, err
		}
		if there(path, f) {
			return func() { _ = f.Close() }, nil
		}
		_ = f.Close()
	}
}

func flock(f *os.File, try bool) error {
	how := unix.LOCK_EX
	if try {
		how |= unix.LOCK_NB
	}
	for {
		switch err := unix.Flock(int(f.Fd()), how); {
		case err == nil:
			return nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrLocked
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}

// there reports whether path is still the file f.
func there(path string, f *os.File) bool {
	a, err := f.Stat()
	b, err2 := os.Lstat(path)
	return err == nil && err2 == nil && os.SameFile(a, b)
}

// Own makes a directory, durably, and refuses one in which somebody else could
// plant or change files: what lies there decides what is written where.
func Own(path string) error {
	if err := makeAll(path); err != nil {
		return err
	}
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	switch {
	case !st.IsDir():
		return fmt.Errorf("%s is no directory: choose another", path)
	case ok && int(sys.Uid) != os.Geteuid():
		return fmt.Errorf("directory %s belongs to user %d: choose another", path, sys.Uid)
	case st.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("directory %s may be written by others (mode %#o): chmod go-w it, or choose another", path, st.Mode().Perm())
	}
	return nil
}

// makeAll is os.MkdirAll with each new name synced: what is durable in a directory
// that is not itself is lost with it.
func makeAll(path string) error {
	parent := filepath.Dir(path)
	if _, err := os.Stat(path); err == nil || parent == path {
		return err
	}
	if err := makeAll(parent); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return SyncDir(parent)
}
