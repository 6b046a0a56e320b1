package mount

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/program"
)

// Bind makes the file system mounted at source appear at target. Nothing but a mount is ever bound: an empty directory of
// the node's own disk would look like the volume (case D-13).
func (h *Host) Bind(ctx context.Context, source, target string, readOnly bool) error {
	if err := errors.Join(checkPath(source), checkPath(target)); err != nil {
		return err
	}
	from, err := h.Find(source)
	if err != nil {
		return err
	}
	if from == nil {
		return fmt.Errorf("%s: %w", source, ErrNotMounted)
	}
	readOnly = readOnly || from.ReadOnly
	done, err := h.occupied(ctx, Device{Number: from.Device}, target, from.Root, readOnly)
	if done || err != nil && !h.unprotected(target, from, readOnly) {
		return err
	}
	if err == nil { // nothing is mounted at the target, so nothing hangs that looks at it
		if err := os.MkdirAll(target, 0o750); err != nil {
			return err
		}
		if err := h.bind(ctx, target, "--bind", source, target); err != nil {
			return err
		}
	}
	if readOnly {
		return h.bind(ctx, target, "-o", "remount,bind,ro", target)
	}
	return nil
}

// unprotected: a bind that was cut short before it became read-only.
func (h *Host) unprotected(target string, from *Point, readOnly bool) bool {
	p, err := h.Find(target)
	return err == nil && p != nil && readOnly && !p.ReadOnly && p.Device == from.Device && p.Root == from.Root
}

// bind runs mount. Its key is the target: it waits for no device.
func (h *Host) bind(ctx context.Context, target string, args ...string) error {
	r, err := h.program(ctx, program.Call{Name: "mount", Args: append([]string{"--no-canonicalize"}, args...)}, mountKey(target))
	if err == nil {
		err = r.Failed("mount " + strings.Join(args, " "))
	}
	return err
}

// BindDevice makes a device's node appear at target, a file. Whether the device may be written to is the device's
// own matter: a read-only mount of a node protects nothing.
func (h *Host) BindDevice(ctx context.Context, path, target string) error {
	if err := errors.Join(checkPath(path), checkPath(target)); err != nil {
		return err
	}
	d, err := h.node.Device(path)
	if err != nil {
		return err
	}
	if done, err := h.nodeBound(ctx, d, target); done || err != nil {
		return err
	}
	if err := touch(target); err != nil {
		return err
	}
	return h.bind(ctx, target, "--bind", path, target)
}

// nodeBound reports whether the target is the device's node already. A node of
// another Device, what a restart of the node plugin with a new device leaves, is
// taken away.
func (h *Host) nodeBound(ctx context.Context, d Device, target string) (bool, error) {
	p, err := h.Find(target)
	if err != nil || p == nil {
		return false, err
	}
	if p.FSType != "devtmpfs" && p.FSType != "tmpfs" {
		return false, fmt.Errorf("%s: %s: %w", target, p.FSType, ErrOccupied)
	}
	if there, err := h.node.Device(target); err == nil && there.Number == d.Number {
		return true, nil
	}
	return false, h.umount(ctx, p, false)
}

// touch makes an empty file to bind a node to.
func touch(target string) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // a checked path of the caller's own
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}
