package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/durable"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
)

// Unstage takes a volume away: unmount, flush, settle all writes and fences,
// detach, close, forget. Each step that is done stays done. It returns within
// unstageWithin, with the cause if the storage answers nothing; called again it
// goes on. A flush that fails is its error: what was not written is not lost
// silently. A volume that is unknown, or staged elsewhere, is a success.
func (n *Node) Unstage(ctx context.Context, volume, staging string) error {
	if err := checkPath("staging path", staging); err != nil {
		return of(volume, "unstage", err)
	}
	ctx, cancel := context.WithTimeout(ctx, unstageWithin)
	defer cancel()
	o, err := n.preempt(ctx, volume)
	if err != nil {
		return err
	}
	defer n.end(o)
	return of(volume, "unstage", n.unstage(ctx, volume, staging))
}

func (n *Node) unstage(ctx context.Context, volume, staging string) error {
	st, err := n.find(volume)
	if err != nil {
		return n.heal(ctx, volume, staging)
	}
	if st == nil {
		return n.cfg.Mounts.Unmount(ctx, staging) // of a process whose state is gone
	}
	if st.rec.Use.Staging != staging {
		return nil
	}
	if err := n.unused(st); err != nil {
		return err
	}
	if st, err = n.discarded(st); err != nil {
		return err
	}
	return n.tearDown(ctx, st)
}

// unused refuses to take a volume from under those it is published to.
func (n *Node) unused(st *state) error {
	if st.rec.Revoked != "" {
		return nil
	}
	var at []string
	for target := range st.rec.Published {
		if p, err := n.cfg.Mounts.Find(target); err != nil || p != nil {
			at = append(at, clip(target))
		}
	}
	if len(at) == 0 {
		return nil
	}
	slices.Sort(at)
	return fmt.Errorf("%w: it is published at %s: unpublish it there first", ErrState, strings.Join(at, ", "))
}

// heal removes a volume whose record cannot be read, by its name: nobody can serve
// it again, and nothing waits for that.
func (n *Node) heal(ctx context.Context, volume, staging string) error {
	n.event(volume, Revoked, "its record cannot be read: what it had not written is lost")
	n.fail(ctx, volume)
	if err := n.cfg.Mounts.Unmount(ctx, staging); err != nil {
		return err
	}
	if err := n.cfg.Devices.Discard(ctx, volume); err != nil {
		return err
	}
	return n.forget(volume)
}

// tearDown takes a volume away, in the order of its states. One that was revoked
// loses what it could not write, and nobody waits for that.
func (n *Node) tearDown(ctx context.Context, st *state) (err error) {
	if st, err = n.mark(st, phaseUnstaging, "volume.unstage.marked"); err != nil {
		return err
	}
	st = n.lost(st)
	if st.rec.Phase == phaseUnstaging {
		if st, err = n.released(ctx, st); err != nil {
			return err
		}
		if st, err = n.mark(st, phaseDetached, "volume.unstage.detached"); err != nil {
			return err
		}
	}
	if err = n.ended(ctx, st); err != nil {
		return err
	}
	faultpoint.Here("volume.unstage.closed")
	return n.forget(st.rec.Volume)
}

// mark writes down how far it is, unless it is further.
func (n *Node) mark(st *state, p phase, point string) (*state, error) {
	if st.rec.Phase == p || st.rec.Phase == phaseDetached {
		return st, nil
	}
	st, err := n.record(st, func(r *record) { r.Phase = p })
	faultpoint.Here(point)
	return st, err
}

// released unmounts, writes what is held back, and removes the block device.
func (n *Node) released(ctx context.Context, st *state) (*state, error) {
	gone := st.rec.Revoked != ""
	if gone && st.dev != nil {
		if err := n.evict(ctx, st); err != nil {
			return st, err
		}
	}
	if gone && st.dev == nil {
		n.fail(ctx, st.rec.Volume)
	}
	if err := n.cfg.Mounts.Unmount(ctx, st.rec.Use.Staging); err != nil {
		return st, n.because(st, "unmount", err)
	}
	faultpoint.Here("volume.unstage.unmounted")
	if st.dev == nil && (gone || st.fresh) {
		return st, n.cfg.Devices.Discard(ctx, st.rec.Volume)
	}
	st, err := n.opened(ctx, st, true)
	if err != nil {
		return st, err
	}
	st = n.lost(st)
	gone = st.rec.Revoked != ""
	if err := st.dev.Flush(ctx); err != nil && !gone {
		return st, n.because(st, "flush", err)
	}
	faultpoint.Here("volume.unstage.flushed")
	if !gone {
		if err := st.dev.Settle(ctx); err != nil {
			return st, n.because(st, "wait for its writes", err)
		}
	}
	faultpoint.Here("volume.unstage.settled")
	if err := st.dev.Detach(ctx); err != nil {
		return st, n.because(st, "detach", err)
	}
	return st, nil
}

// fail has a block device that nobody serves answer with errors, so that nothing
// waits for it. What stands in the way is seen when it is removed.
func (n *Node) fail(ctx context.Context, volume string) {
	ctx, cancel := context.WithTimeout(ctx, failWithin)
	defer cancel()
	_ = n.cfg.Devices.Discard(ctx, volume)
}

// evict unmounts a revoked device wherever it is mounted.
func (n *Node) evict(ctx context.Context, st *state) error {
	points, err := n.cfg.Mounts.Mounts(st.dev.Path())
	for _, p := range points {
		if p.Path != st.rec.Use.Staging {
			err = errors.Join(err, n.cfg.Mounts.Unmount(ctx, p.Path))
		}
	}
	return err
}

// ended ends the sessions, of this process or of one before.
func (n *Node) ended(ctx context.Context, st *state) error {
	if st.dev == nil {
		return n.cfg.Devices.Discard(ctx, st.rec.Volume)
	}
	err := st.dev.Close(ctx)
	n.with(st, func(s *state) { s.dev = nil }) // it is gone either way
	if err != nil && st.rec.Revoked == "" {
		return n.because(st, "close", err)
	}
	return nil
}

// forget removes the files, the record last: until then a retry knows what to do.
func (n *Node) forget(volume string) error {
	if err := n.vault.remove(volume); err != nil {
		return err
	}
	if err := durable.Remove(discardPath(n.cfg.State, volume)); err != nil {
		return err
	}
	if err := durable.Remove(recordPath(n.cfg.State, volume)); err != nil {
		return err
	}
	faultpoint.Here("volume.unstage.forgotten")
	n.drop(volume)
	return nil
}

// because adds to an error what its paths say, if they are the reason.
func (n *Node) because(st *state, doing string, err error) error {
	err = fmt.Errorf("%s: %w", doing, err)
	if st.dev == nil && st.problem != nil {
		return fmt.Errorf("%w: it is not back yet: %w: %w", ErrUnavailable, st.problem, err)
	}
	if st.dev == nil {
		return err
	}
	s := st.dev.Status()
	if s.Usable > 0 {
		return err
	}
	return fmt.Errorf("%w: none of %s: %w", ErrUnavailable, describePaths(s), err)
}

// describePaths is "2 paths works; 10.0.0.1:3260 is down (why); ...", after "none
// of"; describeDown what follows, of those that are down.
func describePaths(s Status) string {
	return fmt.Sprintf("%d paths works; %s", len(s.Paths), describeDown(s))
}

func describeDown(s Status) string {
	var down []string
	for _, p := range s.Paths {
		if p.Up {
			continue
		}
		text := p.Portal + " is " + p.State
		if p.Cause != "" {
			text += " (" + p.Cause + ")"
		}
		down = append(down, text)
	}
	return strings.Join(down, "; ")
}
