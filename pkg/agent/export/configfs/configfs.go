// Package configfs is how the kernel's targets are told what to serve: a tree of
// directories whose making and removing is making and removing objects.
//
// FS is the tree, Open the kernel's. Some of its calls wait in the kernel for
// what an object still does, uninterruptibly: removing an initiator's access
// waits for its sessions, disabling a namespace for its requests. Open's FS makes
// every call aside, so that each returns when its context ends, and lets nothing
// else be done to the same path before the kernel has answered. Package
// configfstest has a tree that behaves like the kernel's, for tests.
package configfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// FS is a tree. Errors are those of the kernel (fs.ErrNotExist, fs.ErrExist,
// syscall.EBUSY, ...) with the path; backend.ErrBusy when ctx ended before the
// kernel answered: then it may still do what it was asked, and the next call for
// the path waits for that first. All methods may be called from any goroutine.
type FS interface {
	Mkdir(ctx context.Context, p Path) error
	Rmdir(ctx context.Context, p Path) error
	// Read is an attribute without its last newline.
	Read(ctx context.Context, p Path) (string, error)
	Write(ctx context.Context, p Path, value string) error
	// Symlink makes at a link to a directory of the tree.
	Symlink(ctx context.Context, to, at Path) error
	Unlink(ctx context.Context, p Path) error
	// List is the names in a directory, in order.
	List(ctx context.Context, p Path) ([]string, error)
}

// Open is the kernel's tree at root, say /sys/kernel/config/target. It must be
// there: the module is not loaded, or configfs not mounted, otherwise.
func Open(root string) (FS, error) {
	if _, err := os.Stat(root); err != nil {
		return nil, fmt.Errorf("%w: %s is not there: mount configfs and load the target's kernel modules: %w", backend.ErrUnavailable, root, err)
	}
	return &kernel{root: root, pending: map[Path]chan struct{}{}}, nil
}

// OpenIfThere is Open, and nil where the kernel has no such tree.
func OpenIfThere(root string) (FS, error) {
	fs, err := Open(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return fs, err
}

// kernel is configfs. mu guards pending: the calls that the kernel has not
// answered, by path.
type kernel struct {
	root    string
	mu      sync.Mutex
	pending map[Path]chan struct{}
}

func (k *kernel) Mkdir(ctx context.Context, p Path) error {
	return k.aside(ctx, p, func(path string) error { return os.Mkdir(path, 0o755) })
}

func (k *kernel) Rmdir(ctx context.Context, p Path) error {
	return k.aside(ctx, p, os.Remove)
}

func (k *kernel) Unlink(ctx context.Context, p Path) error {
	return k.aside(ctx, p, os.Remove)
}

func (k *kernel) Symlink(ctx context.Context, to, at Path) error {
	if err := to.Check(); err != nil {
		return err
	}
	return k.aside(ctx, at, func(path string) error { return os.Symlink(filepath.Join(k.root, string(to)), path) })
}

func (k *kernel) Read(ctx context.Context, p Path) (string, error) {
	var text string
	err := k.aside(ctx, p, func(path string) (err error) {
		text, err = readAttribute(path)
		return err
	})
	if err != nil {
		return "", err
	}
	return text, nil
}

func readAttribute(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxValue+1))
	return strings.TrimSuffix(string(b), "\n"), err
}

func (k *kernel) Write(ctx context.Context, p Path, value string) error {
	if len(value) > maxValue {
		return fmt.Errorf("%w: %d bytes for %s, at most %d", backend.ErrInvalid, len(value), p, maxValue)
	}
	return k.aside(ctx, p, func(path string) error { return writeAttribute(path, value) })
}

// writeAttribute writes it in one piece: configfs takes each write as a value.
func writeAttribute(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func (k *kernel) List(ctx context.Context, p Path) ([]string, error) {
	var all []os.DirEntry
	err := k.aside(ctx, p, func(path string) (err error) {
		all, err = os.ReadDir(path)
		return err
	})
	if err != nil {
		return nil, err
	}
	names := make([]string, len(all))
	for i, e := range all {
		names[i] = e.Name()
	}
	return names, nil
}

// aside calls op in a goroutine of its own, after what is pending for the path.
func (k *kernel) aside(ctx context.Context, p Path, op func(path string) error) error {
	if err := errors.Join(p.Check(), ctx.Err()); err != nil {
		return err
	}
	done, err := k.begin(ctx, p)
	if err != nil {
		return err
	}
	var result error
	go func() {
		result = op(filepath.Join(k.root, string(p)))
		k.mu.Lock()
		delete(k.pending, p)
		k.mu.Unlock()
		close(done)
	}()
	return busyAt(ctx, p, done, func() error { return result })
}

// begin reserves the path.
func (k *kernel) begin(ctx context.Context, p Path) (chan struct{}, error) {
	for {
		k.mu.Lock()
		before := k.pending[p]
		if before == nil {
			break
		}
		k.mu.Unlock()
		if err := busyAt(ctx, p, before, func() error { return nil }); err != nil {
			return nil, err
		}
	}
	defer k.mu.Unlock()
	if len(k.pending) >= maxPending {
		return nil, fmt.Errorf("%w: the kernel has not answered %d calls, this one for %s waits for them", backend.ErrBusy, maxPending, p)
	}
	done := make(chan struct{})
	k.pending[p] = done
	return done, nil
}

// busyAt waits for done, and then is what result says, unless ctx ends before.
func busyAt(ctx context.Context, p Path, done <-chan struct{}, result func() error) error {
	select {
	case <-done:
		return result()
	case <-ctx.Done():
		return fmt.Errorf("%w: the kernel is not done with %s yet: %w", backend.ErrBusy, p, ctx.Err())
	}
}

// Absent reports that an error says that there is no such thing.
func Absent(err error) bool { return errors.Is(err, fs.ErrNotExist) }
