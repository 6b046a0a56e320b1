package lvmthin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
)

// Points are the fault points of this package.
var Points = []string{"lvmthin.create.made", "lvmthin.create.sized", "lvmthin.create.ready", "lvmthin.expand.extended", "lvmthin.delete.removed"}

// Create makes an object, or finds the finished one.
func (s *Store) Create(ctx context.Context, spec store.Spec) (store.Object, error) {
	if err := spec.Check(); err != nil {
		return store.Object{}, err
	}
	done, err := s.promising(ctx)
	if err != nil {
		return store.Object{}, err
	}
	defer done()
	all, err := s.report(ctx, "")
	if err != nil {
		return store.Object{}, err
	}
	old, err := s.find(all, spec.Name)
	if err != nil {
		return store.Object{}, err
	}
	if old != nil && old.phase == store.Ready {
		return old.object(), nil
	}
	if old != nil {
		if err := s.remove(ctx, spec.Name); err != nil {
			return store.Object{}, err
		}
	}
	size, now, err := s.plan(all, spec)
	if err != nil {
		return store.Object{}, err
	}
	if err := s.build(ctx, spec, size, now); err != nil {
		return store.Object{}, s.failed(ctx, spec.Name, err)
	}
	return s.Object(ctx, spec.Name)
}

// plan finds out how long an object is to be, and how long it is at first.
func (s *Store) plan(all []volume, spec store.Spec) (size, now int64, err error) {
	if spec.Source != "" {
		source, err := s.find(all, spec.Source)
		if source, err = finished(source, spec.Source, err); err != nil {
			return 0, 0, err
		}
		now = source.size
	}
	if size, err = s.features.Fit(spec.Size, now); err != nil {
		return 0, 0, err
	}
	if spec.Source == "" {
		now = size
	}
	u, err := s.usage(all)
	if err != nil {
		return 0, 0, err
	}
	return size, now, u.Admit(s.String(), size)
}

// build makes an object of size bytes, which is now long at first.
func (s *Store) build(ctx context.Context, spec store.Spec, size, now int64) error {
	d := described{phase: store.Creating, readOnly: spec.ReadOnly, labels: spec.Labels}
	begun, err := encode(d)
	if err != nil {
		return err
	}
	d.phase = store.Ready
	done, err := encode(d)
	if err != nil {
		return err
	}
	if _, err := s.lvm(ctx, append(s.making(spec, now), retag(nil, begun)...)...); err != nil {
		return err
	}
	faultpoint.Here("lvmthin.create.made")
	if size > now {
		if _, err := s.lvm(ctx, "lvextend", "-y", "-L", bytesArg(size), s.full(spec.Name)); err != nil {
			return err
		}
		faultpoint.Here("lvmthin.create.sized")
	}
	if _, err := s.lvm(ctx, append([]string{"lvchange", s.full(spec.Name)}, retag(begun, done)...)...); err != nil {
		return err
	}
	faultpoint.Here("lvmthin.create.ready")
	return nil
}

// making is the command for a new volume. An empty one is active from the start,
// because only of an active one it is known whether anything was written to it.
// Nothing is wiped: the pool zeroes. (A snapshot does not take -W.)
func (s *Store) making(spec store.Spec, size int64) []string {
	args := []string{"lvcreate", "-y", "-ky", "-n", s.lv(spec.Name)}
	if spec.Source == "" {
		return append(args, "-Wn", "-K", "-ay", "-V", bytesArg(size), "-T", s.String())
	}
	permission := "rw"
	if spec.ReadOnly {
		permission = "r"
	}
	return append(args, "-an", "-s", "-p", permission, s.full(spec.Source))
}

func bytesArg(n int64) string { return strconv.FormatInt(n, 10) + "b" }

// failed is the error of a creation that failed, after what it left is gone.
func (s *Store) failed(ctx context.Context, name string, err error) error {
	if ctx.Err() != nil { // whoever repeats it begins anew
		return err
	}
	all, err2 := s.report(ctx, "")
	if err2 != nil {
		return errors.Join(err, err2)
	}
	if u, e := s.usage(all); e == nil && (u.Filling || u.Full) {
		err = fmt.Errorf("%w: %w", backend.ErrNoSpace, err)
	}
	if e, _ := s.find(all, name); e != nil {
		err = errors.Join(err, s.remove(ctx, name))
	}
	return err
}

// promising waits for whoever decides now what may be promised.
func (s *Store) promising(ctx context.Context) (done func(), err error) {
	select {
	case s.promises <- struct{}{}:
		return func() { <-s.promises }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Expand makes an object longer.
func (s *Store) Expand(ctx context.Context, name string, size int64) (store.Object, error) {
	if err := store.CheckName(name); err != nil {
		return store.Object{}, err
	}
	done, err := s.promising(ctx)
	if err != nil {
		return store.Object{}, err
	}
	defer done()
	all, err := s.report(ctx, "")
	if err != nil {
		return store.Object{}, err
	}
	e, err := s.find(all, name)
	if e, err = finished(e, name, err); err != nil {
		return store.Object{}, err
	}
	if e.size >= size {
		return e.object(), nil
	}
	if e.readOnly {
		return store.Object{}, fmt.Errorf("%w: object %s is a snapshot: it keeps its size", backend.ErrInvalid, name)
	}
	if size, err = s.features.Fit(size, 0); err != nil {
		return store.Object{}, err
	}
	u, err := s.usage(all)
	if err != nil {
		return store.Object{}, err
	}
	if err := u.Admit(s.String(), size-e.size); err != nil {
		return store.Object{}, err
	}
	if _, err := s.lvm(ctx, "lvextend", "-y", "-L", bytesArg(size), s.full(name)); err != nil {
		return store.Object{}, err
	}
	faultpoint.Here("lvmthin.expand.extended")
	return s.Object(ctx, name)
}

// Label replaces the labels, in one step.
func (s *Store) Label(ctx context.Context, name string, l store.Labels) (store.Object, error) {
	if err := l.Check(); err != nil {
		return store.Object{}, err
	}
	e, err := s.ready(ctx, name)
	if err != nil {
		return store.Object{}, err
	}
	e.labels = l
	tags, err := encode(e.described)
	if err != nil {
		return store.Object{}, err
	}
	if change := retag(e.tags, tags); len(change) > 0 {
		if _, err := s.lvm(ctx, append([]string{"lvchange", s.full(name)}, change...)...); err != nil {
			return store.Object{}, err
		}
	}
	return e.object(), nil
}

// Delete removes an object, unless its device is open.
func (s *Store) Delete(ctx context.Context, name string) error {
	e, err := s.lookup(ctx, name)
	if err != nil || e == nil {
		return err
	}
	if e.open {
		return s.inUse(name)
	}
	return s.remove(ctx, name)
}

func (s *Store) inUse(name string) error {
	return &backend.InUse{Object: name, Why: "the device of volume " + s.full(name) + " is open"}
}

// remove removes a volume of ours.
func (s *Store) remove(ctx context.Context, name string) error {
	if _, err := s.lvm(ctx, "lvremove", "-y", s.full(name)); err != nil {
		return s.why(ctx, name, err)
	}
	faultpoint.Here("lvmthin.delete.removed")
	return nil
}

// why is the error of a command that an open device would fail.
func (s *Store) why(ctx context.Context, name string, err error) error {
	e, err2 := s.lookup(ctx, name)
	switch {
	case err2 != nil:
		return errors.Join(err, err2)
	case e == nil: // somebody else did it
		return nil
	case e.open:
		return s.inUse(name)
	}
	return err
}

// Activate makes the device node.
func (s *Store) Activate(ctx context.Context, name string) (store.Backing, error) {
	e, err := s.ready(ctx, name)
	if err != nil {
		return store.Backing{}, err
	}
	if !e.active {
		if _, err := s.lvm(ctx, "lvchange", "-ay", "-K", s.full(name)); err != nil {
			return store.Backing{}, err
		}
	}
	if _, err := os.Stat(s.path(name)); err != nil {
		return store.Backing{}, fmt.Errorf("%w: volume %s is active and has no device node (is udev running?): %w", backend.ErrUnavailable, s.full(name), err)
	}
	return store.Backing{Path: s.path(name), Block: true}, nil
}

// Deactivate removes it, unless it is open.
func (s *Store) Deactivate(ctx context.Context, name string) error {
	e, err := s.lookup(ctx, name)
	if err != nil || e == nil || !e.active {
		return err
	}
	if e.open {
		return s.inUse(name)
	}
	if _, err := s.lvm(ctx, "lvchange", "-an", s.full(name)); err != nil {
		return s.why(ctx, name, err)
	}
	return nil
}
