package mount

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/program"
)

// errNotOnline: this process may not grow a mounted ext4 (CAP_SYS_RESOURCE), or
// this kernel cannot.
var errNotOnline = errors.New("the mounted file system cannot be grown here")

// Grow makes the file system mounted at target as large as its device. It is for every stage and every expansion: a larger clone,
// and a growth that failed before, are made good by the next call (case D-05). A
// device that is smaller than its file system, or has no size for a moment, is an
// error, and changes nothing (case D-21).
func (h *Host) Grow(ctx context.Context, target string) (Growth, error) {
	p, d, err := h.mounted(target)
	if err != nil {
		return Growth{}, err
	}
	if p.ReadOnly {
		return Growth{}, fmt.Errorf("%s is mounted read-only: it is not grown", target)
	}
	s, err := h.super(ctx, d)
	if err != nil {
		return Growth{}, err
	}
	g := Growth{From: s.size, To: s.size}
	switch {
	case s.size > d.Size:
		return g, fmt.Errorf("%s has %d bytes, its %s takes %d: %w", d.Path, d.Size, s.fsType, s.size, ErrTooSmall)
	case d.Size-s.size < uint64(s.block):
		return g, nil
	}
	call := program.Call{Name: "resize2fs", Args: []string{d.Path}}
	if s.fsType == XFS {
		call = program.Call{Name: "xfs_growfs", Args: []string{"-d", target}}
	}
	return h.grown(ctx, d, g, call)
}

// grown runs what grows, and reads what came of it.
func (h *Host) grown(ctx context.Context, d Device, g Growth, call program.Call) (Growth, error) {
	res, err := h.on(ctx, d, call)
	if err != nil && call.Name == "resize2fs" && (strings.Contains(res.Message, "Permission denied") || strings.Contains(res.Message, "not permitted")) {
		err = fmt.Errorf("%w: %w", errNotOnline, err)
	}
	if err != nil {
		return g, fmt.Errorf("%s: grow from %d to %d bytes: %w", d.Path, g.From, d.Size, err)
	}
	// XFS writes its superblock when it likes: what is read may be the old size.
	if call.Name == "xfs_growfs" {
		if strings.Contains(string(res.Out), "data blocks changed") {
			g.To = d.Size
		}
		return g, nil
	}
	s, err := h.super(ctx, d)
	if err == nil {
		g.To = s.size
	}
	return g, err
}

// super reads the superblock of a device that is in use.
func (h *Host) super(ctx context.Context, d Device) (*superblock, error) {
	head, err := h.read(ctx, d, 0, blockLen)
	if err != nil {
		return nil, err
	}
	s := readSuperblock(head)
	if s == nil {
		return nil, fmt.Errorf("%s: neither ext4 nor XFS: %w", d.Path, ErrContent)
	}
	return s, nil
}

// growOffline grows an ext4 that Stage has just mounted, and that could not be
// grown like that: unmounted, checked in full as resize2fs demands, and mounted
// again.
func (h *Host) growOffline(ctx context.Context, d Device, r *Request, g Growth) (Growth, error) {
	p, err := h.Find(r.Target)
	if err != nil || p == nil {
		return g, err
	}
	if err := h.umount(ctx, p, false); err != nil {
		return g, err
	}
	if err := h.free(d); err != nil {
		return g, err
	}
	if _, _, err := h.check(ctx, d, true); err != nil {
		return g, err
	}
	if g, err = h.grown(ctx, d, g, program.Call{Name: "resize2fs", Args: []string{d.Path}}); err != nil {
		return g, err
	}
	return g, h.mount(ctx, d, r)
}

// mounted is the mount at a path, and its device.
func (h *Host) mounted(target string) (*Point, Device, error) {
	p, err := h.Find(target)
	if err != nil {
		return nil, Device{}, err
	}
	if p == nil {
		return nil, Device{}, fmt.Errorf("%s: %w", target, ErrNotMounted)
	}
	d, err := h.node.Numbered(p.Device)
	return p, d, err
}
