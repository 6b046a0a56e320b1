// Package lvmthin keeps volumes as thin logical volumes of an LVM pool, over
// LVM's own commands and its reports in JSON.
//
//  1. An object is the volume csi.POOL.NAME of the pool that has our tags; what
//     has none is an administrator's, and not touched. The tags have all labels,
//     and the phase: creating, ready.
//  2. A new volume is made, copied and expanded while it is creating, and there
//     for anybody once its tags say ready. An unfinished one is begun anew.
//  3. Snapshots are thin: independent of their origin, and of one moment, also
//     while it is written to. They are not activated at boot (activation skip).
//  4. Above the marks of data or metadata nothing is created or expanded.
//
// Every command has an end and a bound; there is one at a time per volume group.
package lvmthin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// lvPrefix begins the names of our volumes. The pool follows: names of objects are
// unique in a pool only, those of volumes in the group.
const lvPrefix = "csi."

// Config says which pool.
type Config struct {
	VolumeGroup, ThinPool string
	// QueueWhenFull makes writes wait for space (a minute, then they fail) when the
	// pool is full. Otherwise they fail at once. The pool is set accordingly.
	QueueWhenFull bool
	// Devices are the paths of the group's physical volumes: then nothing else is
	// scanned. Without them it is what the machine's configuration says.
	Devices []string
	// Marks are the limits of what is promised; zero fields are 85% of the data, 70%
	// of the metadata and ten bytes for each that there is.
	Marks store.Marks
}

// Store is an open pool.
type Store struct {
	cfg      Config
	marks    store.Marks
	features store.Features
	always   []string
	turn     chan struct{} // of the volume group: one command at a time
	promises chan struct{} // one decision about what is promised at a time
	run      runner
	dev      string // where device nodes are
}

var _ store.Store = (*Store)(nil)

// Open looks at the pool, and makes it active and what Config says.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	_, err := os.Stat("/run/udev/control")
	return open(ctx, cfg, execute, "/dev", err == nil)
}

func open(ctx context.Context, cfg Config, run runner, dev string, udev bool) (*Store, error) {
	s := &Store{cfg: cfg, marks: cfg.Marks.Or(defaults), run: run, dev: dev, promises: make(chan struct{}, 1)}
	if !validName(cfg.VolumeGroup) || !validName(cfg.ThinPool) || len(cfg.ThinPool) > maxPool {
		return nil, fmt.Errorf("volume group %q, thin pool %q: want names of LVM, the pool's of at most %d bytes", cfg.VolumeGroup, cfg.ThinPool, maxPool)
	}
	s.turn = turn(cfg.VolumeGroup)
	err := s.marks.Check()
	if err == nil {
		s.always, err = always(cfg, udev)
	}
	if err == nil {
		err = s.prepare(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("thin pool %s: %w", s, err)
	}
	return s, nil
}

// String is "group/pool".
func (s *Store) String() string { return s.cfg.VolumeGroup + "/" + s.cfg.ThinPool }

// prepare checks the pool.
func (s *Store) prepare(ctx context.Context) error {
	all, err := s.report(ctx, "")
	if err != nil {
		return err
	}
	pool, err := s.pool(all)
	if err != nil {
		return err
	}
	if !pool.zeroing {
		return fmt.Errorf("it does not zero new blocks, so that a volume would show what a deleted one had: lvchange -Zy %s", s)
	}
	if pool.errorWhenFull == s.cfg.QueueWhenFull {
		if _, err := s.lvm(ctx, "lvchange", "--errorwhenfull", yes(!s.cfg.QueueWhenFull), s.String()); err != nil {
			return err
		}
	}
	if !pool.active {
		if _, err := s.lvm(ctx, "lvchange", "-ay", s.String()); err != nil {
			return err
		}
	}
	s.features = store.Features{Snapshots: true, AtomicSnapshots: true, Thin: true, Block: true, Step: pool.extent, Min: pool.extent, Max: maxObject}
	return nil
}

func yes(b bool) string {
	if b {
		return "y"
	}
	return "n"
}

// pool finds the pool in a report.
func (s *Store) pool(all []volume) (volume, error) {
	i := slices.IndexFunc(all, func(v volume) bool { return v.name == s.cfg.ThinPool && v.kind == "thin-pool" })
	if i < 0 {
		return volume{}, fmt.Errorf("%w: volume group %s has no thin pool %s", backend.ErrUnavailable, s.cfg.VolumeGroup, s.cfg.ThinPool)
	}
	return all[i], nil
}

// report lists the volumes of the group, or one of them, if it is there.
func (s *Store) report(ctx context.Context, lv string) ([]volume, error) {
	args := []string{"lvs", "--reportformat", "json", "--units", "b", "--nosuffix", "-o", fields}
	if lv != "" {
		args = append(args, "--select", fmt.Sprintf("lv_name=%q", lv))
	}
	out, err := s.lvm(ctx, append(args, s.cfg.VolumeGroup)...)
	if err != nil {
		return nil, err
	}
	return parse(out)
}

// Kind is "lvm-thin".
func (s *Store) Kind() string { return "lvm-thin" }

// Features are those of thin pools.
func (s *Store) Features() store.Features { return s.features }

// Close leaves everything as it is.
func (s *Store) Close() error { return nil }

// lv is the volume of an object. Whoever makes an argument of it has checked the
// name: find and lookup do.
func (s *Store) lv(name string) string { return lvPrefix + s.cfg.ThinPool + "." + name }

// full is the volume of an object as an argument.
func (s *Store) full(name string) string { return s.cfg.VolumeGroup + "/" + s.lv(name) }

// path is its device node.
func (s *Store) path(name string) string {
	return filepath.Join(s.dev, s.cfg.VolumeGroup, s.lv(name))
}

// entry is an object with its volume.
type entry struct {
	name string
	volume
	described
}

// object is what the store says of it.
func (e entry) object() store.Object {
	return store.Object{Name: e.name, Size: e.size, ReadOnly: e.readOnly, Labels: e.labels, Content: e.content(), Taken: -1}
}

// content is what blocks that are taken say; of a volume that is not active, that
// is not known.
func (e entry) content() backend.Content {
	switch {
	case e.data == 0:
		return backend.ContentBlank
	case e.data > 0:
		return backend.ContentWritten
	}
	return backend.ContentUnknown
}

// entry reads one volume of a report; ok false: it is not ours. A volume that has
// the name of an object of ours and no tags is an error for whoever wants it.
func (s *Store) entry(v volume) (e entry, ok bool, err error) {
	name, prefixed := strings.CutPrefix(v.name, s.lv(""))
	if !prefixed || v.pool != s.cfg.ThinPool || !ours(v.tags) || !backend.ValidName(name, backend.MaxObject) {
		return entry{}, false, nil
	}
	d, err := decode(v.tags)
	if err != nil {
		return entry{}, false, fmt.Errorf("volume %s/%s: its tags are damaged: %s", s.cfg.VolumeGroup, v.name, err.Error()) // not the caller's ErrInvalid
	}
	return entry{name, v, d}, true, nil
}

// find looks an object up in a report, finished or not; nil: there is none.
func (s *Store) find(all []volume, name string) (*entry, error) {
	if err := store.CheckName(name); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(v volume) bool { return v.name == s.lv(name) })
	if i < 0 {
		return nil, nil
	}
	e, ok, err := s.entry(all[i])
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("volume %s/%s has no tags of this program, so it is not of this store: rename it", s.cfg.VolumeGroup, s.lv(name))
	}
	return &e, nil
}

// lookup is find in a report of just that volume.
func (s *Store) lookup(ctx context.Context, name string) (*entry, error) {
	if err := store.CheckName(name); err != nil {
		return nil, err
	}
	all, err := s.report(ctx, s.lv(name))
	if err != nil {
		return nil, err
	}
	return s.find(all, name)
}

// ready is lookup for objects that are finished.
func (s *Store) ready(ctx context.Context, name string) (*entry, error) {
	e, err := s.lookup(ctx, name)
	return finished(e, name, err)
}

func finished(e *entry, name string, err error) (*entry, error) {
	if err == nil && (e == nil || e.phase != store.Ready) {
		err = fmt.Errorf("%w: object %s", backend.ErrNotFound, name)
	}
	return e, err
}
