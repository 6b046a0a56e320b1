package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
	"github.com/csi-mpath/csi-mpath/pkg/program"
)

// Stage brings the device's file system to Request.Target:
//
//  1. What is mounted at the target already? Ours: only grow. A dead one: away.
//  2. Probe: what is on the Device, read in full, or an error.
//  3. Make, confirm or check the file system, or refuse.
//  4. Mount, and see in the kernel's table that it is ours.
//  5. Grow to the device.
func (h *Host) Stage(ctx context.Context, r Request) (Report, error) {
	rep, err := h.stage(ctx, &r)
	if err != nil {
		err = fmt.Errorf("volume %s: %w", r.Volume, err)
	}
	return rep, err
}

func (h *Host) stage(ctx context.Context, r *Request) (rep Report, err error) {
	if err := r.check(); err != nil {
		return rep, err
	}
	d, err := h.node.Device(r.Device)
	if err != nil {
		return rep, err
	}
	if rep.Mounted, err = h.occupied(ctx, d, r.Target, "/", r.ReadOnly); err != nil {
		return rep, err
	}
	if !rep.Mounted {
		if err := h.prepare(ctx, d, r, &rep); err != nil {
			return rep, err
		}
		faultpoint.Here("mount.stage.prepared")
		if err := h.mount(ctx, d, r); err != nil {
			return rep, err
		}
		faultpoint.Here("mount.stage.mounted")
	}
	if r.ReadOnly {
		return rep, nil
	}
	rep.Growth, err = h.Grow(ctx, r.Target)
	if errors.Is(err, errNotOnline) && !rep.Mounted {
		rep.Growth, err = h.growOffline(ctx, d, r, rep.Growth)
	}
	return rep, err
}

// occupied reports whether the right mount is at the target already. Mounts of
// devices that are no more are taken away; others are somebody's.
func (h *Host) occupied(ctx context.Context, d Device, target, root string, readOnly bool) (bool, error) {
	for range maxLayers {
		p, err := h.Find(target)
		switch {
		case err != nil || p == nil:
			return false, err
		case p.Device == d.Number && p.Root == root && p.ReadOnly == readOnly:
			return true, nil
		case p.Device == d.Number && p.Root == root:
			return false, fmt.Errorf("%s: mounted with read-only %v already: %w", target, p.ReadOnly, ErrOccupied)
		case !h.gone(p):
			return false, fmt.Errorf("%s: device %s (%s): %w", target, p.Device, p.Source, ErrOccupied)
		}
		if err := h.umount(ctx, p, true); err != nil {
			return false, err
		}
	}
	return false, fmt.Errorf("%s: more than %d mounts of dead Devices: %w", target, maxLayers, ErrOccupied)
}

// prepare makes sure that the device holds the file system, fit for mounting.
func (h *Host) prepare(ctx context.Context, d Device, r *Request, rep *Report) error {
	c, err := h.probe(ctx, d, r.Volume)
	if err != nil {
		return err
	}
	blank := c.verdict == allZero && c.tags == tags{}
	switch {
	case c.verdict == cutShort || (blank || c.verdict == abandoned) && r.Blank:
		if r.ReadOnly {
			return fmt.Errorf("a read-only volume is not formatted: %w", ErrNotBlank)
		}
		if err := h.free(d); err != nil {
			return err
		}
		rep.Formatted, rep.Resumed = true, c.verdict == cutShort
		return h.format(ctx, d, r)
	case blank:
		return fmt.Errorf("%s holds nothing, and is a clone or was written to, so it should: %w", d.Path, ErrNotBlank)
	case c.verdict == abandoned:
		return fmt.Errorf("%s holds an XFS whose mkfs did not come to its end: %w", d.Path, ErrContent)
	}
	if err := c.fits(d, r.FSType); err != nil {
		return err
	}
	return h.ready(ctx, d, r, c.verdict, rep)
}

// free: nobody has the device's file system mounted, as the kernel tells.
func (h *Host) free(d Device) error {
	points, err := h.mountsOf(d)
	if err == nil && len(points) > 0 {
		err = fmt.Errorf("%s is mounted at %s: %w", d.Path, points[0].Path, ErrInUse)
	}
	return err
}

// fits says why what is on a device cannot be mounted as fsType.
func (c *content) fits(d Device, fsType string) error {
	switch {
	case c.super == nil && c.tags.fsType == fsType:
		return fmt.Errorf("%s: blkid sees %s, and its superblock makes no sense: %w", d.Path, fsType, ErrDamaged)
	case c.tags.ambiguous || c.tags.table != "" || c.tags.fsType != fsType || c.super == nil || c.super.fsType != fsType:
		return fmt.Errorf("%s holds %s, not %s: %w", d.Path, c.tags, fsType, ErrContent)
	case c.super.size > d.Size:
		return fmt.Errorf("%s has %d bytes, its %s takes %d: %w", d.Path, d.Size, fsType, c.super.size, ErrTooSmall)
	}
	return nil
}

// ready checks a file system that is there, unless somebody may not or need not:
// read-only volumes are left as they are, mounted ones are the kernel's.
func (h *Host) ready(ctx context.Context, d Device, r *Request, v verdict, rep *Report) error {
	points, err := h.mountsOf(d)
	if err != nil || r.ReadOnly || len(points) > 0 {
		return err
	}
	if v == unconfirmed {
		return h.confirm(ctx, d, r)
	}
	if r.FSType == Ext4 {
		rep.Repaired, rep.Messages, err = h.check(ctx, d, false)
	}
	return err
}

// mount mounts, and believes only the kernel's table.
func (h *Host) mount(ctx context.Context, d Device, r *Request) error {
	if err := os.MkdirAll(r.Target, 0o750); err != nil {
		return err
	}
	res, err := h.program(ctx, program.Call{Name: "mount", Args: []string{"--no-canonicalize", "--internal-only",
		"-t", r.FSType, "-o", strings.Join(options(r), ","), d.Path, r.Target}}, d.Number, mountKey(r.Target))
	if err == nil {
		err = res.Failed("mount")
	}
	if err != nil {
		return fmt.Errorf("%w%s", err, advice(r.FSType, res.Message))
	}
	p, err := h.Find(r.Target)
	if err == nil && (p == nil || p.Device != d.Number) {
		err = fmt.Errorf("mount of %s at %s ended well, and the kernel does not show it: %w", d.Path, r.Target, ErrNotMounted)
	}
	return err
}

// advice says what a human can do about a file system that does not mount.
func advice(fsType, message string) string {
	if fsType != XFS || !strings.Contains(message, "needs cleaning") && !strings.Contains(message, "superblock") {
		return ""
	}
	return "; the XFS may be damaged: look with xfs_repair -n, and save what the volume holds before xfs_repair changes it"
}

// options are what mount is given: the caller's, then what must be. A clone has
// its source's UUID, and both may be on one node (case D-04). A read-only volume
// is not written to for its journal either.
func options(r *Request) []string {
	out := slices.Clone(r.MountOptions)
	if r.FSType == XFS {
		out = append(out, "nouuid")
	}
	switch {
	case r.ReadOnly && r.FSType == XFS:
		out = append(out, "ro", "norecovery")
	case r.ReadOnly:
		out = append(out, "ro", "noload")
	default:
		out = append(out, "rw")
	}
	return out
}
