package volume

import (
	"context"
	"errors"
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// PublishRequest asks for a staged volume at a path.
type PublishRequest struct {
	Volume, Staging, Target string
	Block                   bool
	ReadOnly                bool
	// Alone: at no other path at the same time.
	Alone          bool
	PublishContext map[string]string // may be empty
	Secrets        Secrets           // may be empty: those of Stage
}

func (r *PublishRequest) check() error {
	return errors.Join(checkPath("staging path", r.Staging), checkPath("target path", r.Target), r.Secrets.check())
}

// Publish makes a staged volume appear at a path: its file system, bound there,
// or its device node. It never binds an empty directory: what is at the staging
// path must be the volume's file system. Secrets that changed are those of
// logins to come.
func (n *Node) Publish(ctx context.Context, r PublishRequest) error {
	o, err := n.begin(r.Volume)
	if err != nil {
		return err
	}
	defer n.end(o)
	if err := r.check(); err != nil {
		return of(r.Volume, "publish", err)
	}
	return of(r.Volume, "publish", n.publish(ctx, r))
}

func (n *Node) publish(ctx context.Context, r PublishRequest) error {
	st, err := n.find(r.Volume)
	if err != nil {
		return err
	}
	if st, err = n.ready(st, r); err != nil {
		return err
	}
	ro := r.ReadOnly || st.rec.Use.ReadOnly
	if was, there := st.rec.Published[r.Target]; there && was.ReadOnly != ro {
		return fmt.Errorf("%w: it is published at %s with read-only %t: unpublish it first", ErrConflict, clip(r.Target), was.ReadOnly)
	} else if !there {
		if st, err = n.admit(st, r, ro); err != nil {
			return err
		}
	}
	faultpoint.Here("volume.publish.recorded")
	if r.Block {
		err = n.cfg.Mounts.BindDevice(ctx, st.dev.Path(), r.Target)
	} else {
		err = n.cfg.Mounts.Bind(ctx, r.Staging, r.Target, ro)
	}
	faultpoint.Here("volume.publish.bound")
	return err
}

// ready refuses a volume that is not staged as the request says, and brings its
// secrets and tunables up to date.
func (n *Node) ready(st *state, r PublishRequest) (*state, error) {
	switch {
	case st == nil, st.rec.Phase != phaseStaged, st.rec.Use.Staging != r.Staging:
		return st, fmt.Errorf("%w: it is not staged at %s: stage it first", ErrState, clip(r.Staging))
	case st.rec.Revoked != "":
		return st, fmt.Errorf("%w: %s: unstage it", ErrState, st.rec.Revoked)
	case st.rec.Use.Block != r.Block:
		return st, fmt.Errorf("%w: it is staged as raw block %t", ErrConflict, st.rec.Use.Block)
	case r.Block && r.ReadOnly && !st.rec.Use.ReadOnly:
		return st, fmt.Errorf("%w: a raw block volume that is staged writable cannot be published read-only: stage it with a read-only access mode", ErrUnsupported)
	case st.dev == nil:
		return st, fmt.Errorf("%w: it was served before, and is not back yet: %w", ErrUnavailable, st.problem)
	}
	if len(r.PublishContext) > 0 {
		a, err := attrs.ParsePublishContext(r.PublishContext)
		if err != nil {
			return st, err
		}
		if a.Epoch != st.attached.Epoch {
			st = n.revoke(st, fmt.Sprintf("its publication %s was revoked: now it is %s", st.attached.Epoch, a.Epoch))
			return st, fmt.Errorf("%w: %s: unstage it", ErrState, st.rec.Revoked)
		}
		if st, err = n.tuned(st, a.Generation, a.Tunables); err != nil {
			return st, err
		}
	}
	if len(r.Secrets) > 0 {
		var err error
		if st, err = n.renewed(st, r.Secrets); err != nil {
			return st, err
		}
	}
	return st, n.mounted(st)
}

// mounted wants the volume's own file system at the staging path, compared by
// the device's number: not what a name says.
func (n *Node) mounted(st *state) error {
	if st.rec.Use.Block {
		return nil
	}
	points, err := n.cfg.Mounts.Mounts(st.dev.Path())
	if err != nil {
		return err
	}
	top, err := n.cfg.Mounts.Find(st.rec.Use.Staging)
	if err != nil {
		return err
	}
	for _, p := range points {
		if top != nil && p.Path == st.rec.Use.Staging && p.Device == top.Device {
			return nil
		}
	}
	return fmt.Errorf("%w: its file system is not mounted at %s: stage it again", ErrState, clip(st.rec.Use.Staging))
}

// admit writes a publication down before it is there.
func (n *Node) admit(st *state, r PublishRequest, ro bool) (*state, error) {
	if len(st.rec.Published) >= maxTargets {
		return st, fmt.Errorf("%w: it is published at %d paths, which is the limit", ErrState, len(st.rec.Published))
	}
	if r.Alone {
		for other := range st.rec.Published {
			if p, err := n.cfg.Mounts.Find(other); err != nil || p != nil {
				return st, fmt.Errorf("%w: its access mode allows one path, and it is published at %s", ErrState, clip(other))
			}
		}
	}
	return n.record(st, func(rec *record) {
		if rec.Published == nil {
			rec.Published = map[string]publication{}
		}
		rec.Published[r.Target] = publication{ReadOnly: ro}
	})
}

// Unpublish takes a volume away from a path, and the path. What is not there is
// done, and what hangs is unmounted lazily.
func (n *Node) Unpublish(ctx context.Context, volume, target string) error {
	o, err := n.begin(volume)
	if err != nil {
		return err
	}
	defer n.end(o)
	if err := checkPath("target path", target); err != nil {
		return of(volume, "unpublish", err)
	}
	return of(volume, "unpublish", n.unpublish(ctx, volume, target))
}

func (n *Node) unpublish(ctx context.Context, volume, target string) error {
	st := n.known(volume)
	if st != nil && st.rec.Use.Staging == target {
		return fmt.Errorf("%w: %s is the staging path", ErrInvalid, clip(target))
	}
	if err := n.cfg.Mounts.Unmount(ctx, target); err != nil {
		return err
	}
	faultpoint.Here("volume.unpublish.unmounted")
	if st == nil {
		return nil
	}
	if _, there := st.rec.Published[target]; !there {
		return nil
	}
	_, err := n.record(st, func(r *record) { delete(r.Published, target) })
	faultpoint.Here("volume.unpublish.recorded")
	return err
}
