// Package directory keeps volumes as files of one directory: NAME.img has an
// object's bytes, NAME.json what is known of it.
//
//  1. Create writes the record (creating), makes the file, writes the record
//     (ready). Only then the object is there for anybody.
//  2. Delete writes the record (deleting), removes the file, removes the record.
//     So there is never a file without a record, and no file is ours without one.
//  3. Snapshots and clones are reflinks (FICLONE): where the file system has none,
//     there are none.
//
// The directory is locked: a second agent on it is refused.
package directory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/durable"
)

const (
	imageSuffix  = ".img"
	recordSuffix = ".json"
	lockName     = ".lock"
)

// Config is where and how files are made.
type Config struct {
	// Path is the directory; it is made if it is missing. Nobody else may write
	// to it.
	Path string
	// Known is a file somewhere else that remembers which directory it was: another
	// one, as of a file system that is not mounted, is refused. "": nobody remembers.
	Known string
	// Preallocate takes the space of new objects at once.
	Preallocate bool
	// Marks are the limits of what is promised; zero fields are 90% and ten
	// bytes for each that there is.
	Marks store.Marks
}

// Store is an open directory.
type Store struct {
	dir      string
	prealloc bool
	marks    store.Marks
	features store.Features
	clone    cloner
	unlock   func()

	// mu guards promised: the size of each object, finished or not, which Open
	// reads and every change follows, so that the sum needs no walk.
	mu       sync.Mutex
	promised map[string]int64
}

var _ store.Store = (*Store)(nil)

// Open opens a directory of objects.
func Open(cfg Config) (*Store, error) { return open(cfg, reflink) }

func open(cfg Config, clone cloner) (*Store, error) {
	s := &Store{dir: cfg.Path, prealloc: cfg.Preallocate, marks: cfg.Marks.Or(defaults), clone: clone, promised: map[string]int64{}}
	if !filepath.IsAbs(cfg.Path) || filepath.Clean(cfg.Path) != cfg.Path {
		return nil, fmt.Errorf("store %q: want a clean absolute path", cfg.Path)
	}
	err := errors.Join(s.marks.Check(), durable.Own(s.dir))
	if err == nil {
		s.unlock, err = durable.Lock(filepath.Join(s.dir, lockName), true)
	}
	if errors.Is(err, durable.ErrLocked) {
		err = errors.New("another agent has it: give each a directory of its own")
	}
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", s.dir, err)
	}
	if err = s.recognize(cfg.Known); err == nil {
		err = s.load()
	}
	if err != nil {
		s.unlock()
		return nil, fmt.Errorf("store %s: %w", s.dir, err)
	}
	return s, nil
}

// load probes the file system, and reads what the objects were promised.
func (s *Store) load() error {
	if err := durable.Sweep(s.dir); err != nil {
		return err
	}
	cloning, err := s.probe()
	if err != nil {
		return err
	}
	s.features = store.Features{Snapshots: cloning, Thin: !s.prealloc, Step: step, Min: step, Max: maxObject}
	names, err := s.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		// A damaged record does not keep all others from being served: whoever asks
		// for its object is told.
		if r, err := s.read(name); err == nil && r != nil {
			s.promised[name] = r.Size
		}
	}
	return nil
}

// Kind is "directory".
func (s *Store) Kind() string { return "directory" }

// Features are what the file system can.
func (s *Store) Features() store.Features { return s.features }

// Close lets another process open the directory.
func (s *Store) Close() error {
	s.unlock()
	return nil
}

// path is where a file of an object lies: the one place where names become paths.
func (s *Store) path(name, suffix string) (string, error) {
	if err := store.CheckName(name); err != nil {
		return "", err
	}
	return filepath.Join(s.dir, name+suffix), nil
}

// names lists the objects that have a record, in order.
func (s *Store) names() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), recordSuffix)
		if !ok || store.CheckName(name) != nil {
			continue
		}
		out = append(out, name)
	}
	if len(out) > maxObjects {
		return nil, fmt.Errorf("%w: %s has %d objects, at most %d", backend.ErrNoSpace, s.dir, len(out), maxObjects)
	}
	slices.Sort(out)
	return out, nil
}

// Object reads one object.
func (s *Store) Object(_ context.Context, name string) (store.Object, error) {
	r, err := s.ready(name)
	if err != nil {
		return store.Object{}, err
	}
	return s.object(r)
}

// object adds to the record what the file says.
func (s *Store) object(r *record) (store.Object, error) {
	path, err := s.path(r.Name, imageSuffix)
	if err != nil {
		return store.Object{}, err
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return store.Object{}, fmt.Errorf("the bytes of object %s: %s: %w", r.Name, path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size < r.Size {
		return store.Object{}, fmt.Errorf("the bytes of object %s: %s is no file of %d bytes: it was changed by somebody else", r.Name, path, r.Size)
	}
	o := store.Object{Name: r.Name, Size: st.Size, ReadOnly: r.ReadOnly, Labels: r.Labels.read(), Content: content(r, &st), Taken: st.Blocks * 512}
	if s.features.Snapshots {
		o.Taken = -1 // blocks may be shared with others
	}
	return o, nil
}

// content is what taken blocks say: a file system counts those that it has not
// written yet, too.
func content(r *record, st *unix.Stat_t) backend.Content {
	switch {
	case st.Blocks == 0:
		return backend.ContentBlank
	case r.Preallocated:
		return backend.ContentUnknown
	}
	return backend.ContentWritten
}

// Objects lists what is finished. With an error it has those that could be read.
func (s *Store) Objects(ctx context.Context) ([]store.Object, error) {
	var out []store.Object
	err := s.each(ctx, func(r *record) error {
		if r.Phase != store.Ready {
			return nil
		}
		o, err := s.object(r)
		if err == nil {
			out = append(out, o)
		}
		return err
	})
	return out, err
}

// Unfinished lists what is not.
func (s *Store) Unfinished(ctx context.Context) ([]string, error) {
	var out []string
	err := s.each(ctx, func(r *record) error {
		if r.Phase != store.Ready {
			out = append(out, r.Name)
		}
		return nil
	})
	return out, err
}

// each calls f for every record in the order of names, and joins what fails.
func (s *Store) each(ctx context.Context, f func(*record) error) error {
	names, err := s.names()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		r, err := s.read(name)
		if err == nil && r != nil {
			err = f(r)
		}
		if errors.Is(err, fs.ErrNotExist) && s.gone(name) {
			continue // a Delete beside us
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// gone reports that there is no finished object of that name (any more).
func (s *Store) gone(name string) bool {
	_, err := s.ready(name)
	return errors.Is(err, backend.ErrNotFound)
}

// Label replaces the labels.
func (s *Store) Label(_ context.Context, name string, l store.Labels) (store.Object, error) {
	if err := l.Check(); err != nil {
		return store.Object{}, err
	}
	r, err := s.ready(name)
	if err != nil {
		return store.Object{}, err
	}
	r.Labels = written(l)
	if err := s.write(r); err != nil {
		return store.Object{}, err
	}
	return s.object(r)
}

// Activate says where the bytes are.
func (s *Store) Activate(_ context.Context, name string) (store.Backing, error) {
	if _, err := s.ready(name); err != nil {
		return store.Backing{}, err
	}
	path, err := s.path(name, imageSuffix)
	return store.Backing{Path: path}, err
}

// Deactivate has nothing to do.
func (s *Store) Deactivate(_ context.Context, name string) error { return store.CheckName(name) }
