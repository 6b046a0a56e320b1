package directory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/durable"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
)

// Points are the fault points of this package, beside those of durable.
var Points = []string{
	"directory.create.recorded", "directory.create.made", "directory.create.ready",
	"directory.expand.grown",
	"directory.delete.marked", "directory.delete.removed",
}

// Create makes an object, or finds the finished one. An unfinished one is begun
// anew: there is nothing in it worth keeping.
func (s *Store) Create(ctx context.Context, spec store.Spec) (store.Object, error) {
	if err := errors.Join(spec.Check(), ctx.Err()); err != nil {
		return store.Object{}, err
	}
	old, err := s.read(spec.Name)
	if err != nil {
		return store.Object{}, err
	}
	if old != nil && old.Phase == store.Ready {
		return s.object(old)
	}
	r, err := s.plan(spec)
	if err != nil {
		return store.Object{}, err
	}
	if err := s.clear(spec.Name, old != nil); err != nil {
		return store.Object{}, err
	}
	if err := s.promise(ctx, spec.Name, r.Size); err != nil {
		return store.Object{}, err
	}
	if err := s.build(r); err != nil {
		return store.Object{}, errors.Join(err, s.erase(spec.Name))
	}
	return s.object(r)
}

// plan is the record of an object to be made.
func (s *Store) plan(spec store.Spec) (*record, error) {
	r := &record{Version: recordVersion, Name: spec.Name, Phase: store.Creating, Source: spec.Source, ReadOnly: spec.ReadOnly,
		Preallocated: s.prealloc && spec.Source == "", Labels: written(spec.Labels)}
	var least int64
	if spec.Source != "" {
		if !s.features.Snapshots {
			return nil, noReflinks(s.dir)
		}
		src, err := s.ready(spec.Source)
		if err != nil {
			return nil, err
		}
		o, err := s.object(src)
		if err != nil {
			return nil, err
		}
		least, r.Preallocated = o.Size, src.Preallocated
	}
	var err error
	r.Size, err = s.features.Fit(spec.Size, least)
	return r, err
}

// clear makes room for a new object: what an unfinished one left goes, and a file
// that has no record is not ours.
func (s *Store) clear(name string, unfinished bool) error {
	if unfinished {
		return s.erase(name)
	}
	path, err := s.path(name, imageSuffix)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("%s has no record, so it is not of this store: move it away", path), err)
	}
	return nil
}

// build takes an object from its first record to its last.
func (s *Store) build(r *record) error {
	if err := s.write(r); err != nil {
		return err
	}
	faultpoint.Here("directory.create.recorded")
	if err := s.make(r); err != nil {
		return space(err)
	}
	faultpoint.Here("directory.create.made")
	r.Phase = store.Ready
	if err := s.write(r); err != nil { // syncs the directory for the file, too
		return err
	}
	faultpoint.Here("directory.create.ready")
	return nil
}

// make makes the file of an object.
func (s *Store) make(r *record) error {
	path, err := s.path(r.Name, imageSuffix)
	if err != nil {
		return err
	}
	mode := os.FileMode(0o600)
	if r.ReadOnly {
		mode = 0o400
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, mode) //nolint:gosec // path checked the name
	if err != nil {
		return err
	}
	if r.Source != "" {
		err = s.copyFrom(f, r.Source)
	}
	if err == nil {
		err = grow(f, r.Size, r.Preallocated && r.Source == "")
	}
	return errors.Join(err, f.Close())
}

// copyFrom makes f share all bytes of the source.
func (s *Store) copyFrom(f *os.File, source string) error {
	path, err := s.path(source, imageSuffix)
	if err != nil {
		return err
	}
	src, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0) //nolint:gosec // path checked the name
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	if err := s.clone(f, src); errors.Is(err, unix.EOPNOTSUPP) {
		return noReflinks(s.dir)
	} else if err != nil {
		return fmt.Errorf("a reflink of %s: %w", path, err)
	}
	return nil
}

func noReflinks(dir string) error {
	return fmt.Errorf("%w: the file system of %s has no reflinks (FICLONE), so no snapshots and clones: XFS and btrfs have", backend.ErrUnsupported, dir)
}

// grow makes f size bytes long, durably; it is never made shorter. When the space
// is not there, it is as long as it was.
func grow(f *os.File, size int64, allocate bool) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if old := st.Size(); size > old && allocate {
		if err := fallocate(f, old, size-old); err != nil {
			return errors.Join(err, f.Truncate(old))
		}
	} else if size > old {
		err = f.Truncate(size)
	}
	return errors.Join(err, f.Sync())
}

// Expand makes an object longer.
func (s *Store) Expand(ctx context.Context, name string, size int64) (store.Object, error) {
	r, err := s.ready(name)
	if err != nil {
		return store.Object{}, err
	}
	o, err := s.object(r)
	if err != nil || o.Size >= size {
		return o, err
	}
	if r.ReadOnly {
		return store.Object{}, fmt.Errorf("%w: object %s is a snapshot: it keeps its size", backend.ErrInvalid, name)
	}
	r.Size, err = s.features.Fit(size, 0)
	if err != nil {
		return store.Object{}, err
	}
	if err := s.promise(ctx, name, r.Size); err != nil {
		return store.Object{}, err
	}
	if err := s.lengthen(r); err != nil {
		s.keep(name, o.Size)
		return store.Object{}, err
	}
	return s.object(r)
}

func (s *Store) lengthen(r *record) error {
	path, err := s.path(r.Name, imageSuffix)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0) //nolint:gosec // path checked the name
	if err != nil {
		return err
	}
	if err := errors.Join(grow(f, r.Size, r.Preallocated), f.Close()); err != nil {
		return fmt.Errorf("object %s: %w", r.Name, space(err))
	}
	faultpoint.Here("directory.expand.grown")
	return s.write(r)
}

// Delete removes an object and all that it left.
func (s *Store) Delete(_ context.Context, name string) error {
	r, err := s.read(name)
	if err != nil {
		return err
	}
	if r == nil {
		return s.clear(name, false)
	}
	if err := s.idle(name); err != nil {
		return err
	}
	if r.Phase == store.Ready {
		r.Phase = store.Deleting
		// A full disk has no room for the mark, and must be emptied all the same. A
		// crash would leave a record without a file then: damage, which Delete ends.
		if err := s.write(r); err != nil && !errors.Is(err, backend.ErrNoSpace) {
			return err
		}
	}
	faultpoint.Here("directory.delete.marked")
	return s.erase(name)
}

// erase removes the files of an object: the record last, and only when it is
// durable that the other is gone.
func (s *Store) erase(name string) error {
	for _, suffix := range []string{imageSuffix, recordSuffix} {
		path, err := s.path(name, suffix)
		if err != nil {
			return err
		}
		if err := durable.Remove(path); err != nil {
			return fmt.Errorf("object %s: %w", name, err)
		}
		faultpoint.Here("directory.delete.removed")
	}
	s.keep(name, 0)
	return nil
}
