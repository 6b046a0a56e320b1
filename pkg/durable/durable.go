// Package durable replaces and removes files so that what returned is on stable
// storage, and a crash at any moment leaves the old or the new content.
package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
)

// temporary begins the names of files that are not finished.
const temporary = ".tmp-"

// Points are the fault points of this package.
var Points = []string{"durable.write.written", "durable.write.renamed", "durable.remove.removed"}

// Write replaces path by b, readable by its owner only: written aside, synced,
// renamed, and its directory synced.
func Write(path string, b []byte) error {
	if err := replace(path, b, true); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// Replace is Write for what need not survive more than a kill of the process: a
// crash of the machine may lose the old and the new content.
func Replace(path string, b []byte) error { return replace(path, b, false) }

func replace(path string, b []byte, sync bool) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), temporary+"*") // 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	if _, err = tmp.Write(b); err == nil && sync {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	faultpoint.Here("durable.write.written")
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	faultpoint.Here("durable.write.renamed")
	return nil
}

// Remove removes path, which need not be there, and syncs its directory.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	faultpoint.Here("durable.remove.removed")
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // a directory of the caller's own
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Read returns the whole of a file of at most limit bytes.
func Read(path string, limit int64) ([]byte, error) {
	r, err := os.Open(path) //nolint:gosec // a file of the caller's own
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return b, err
}

// Unfinished reports whether a file's name is that of one that was being written.
func Unfinished(name string) bool { return strings.HasPrefix(name, temporary) }

// Sweep removes what interrupted writes left in a directory that nobody writes
// to now.
func Sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !Unfinished(e.Name()) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
