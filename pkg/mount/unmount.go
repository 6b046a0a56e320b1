package mount

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/program"
)

// Unmount removes every mount at a path, and then the path itself. A path that is
// not there is done. An unmount that waits for the device is left behind,
// and an error: it goes on when the device answers, or fails, and the next call
// finds nothing to do. Never lazily then: what is dirty would be neither written
// nor lost, and look unmounted. A device that is no more gets its mount taken away
// lazily: nothing can be written there any more (kubernetes#109132).
func (h *Host) Unmount(ctx context.Context, target string) error {
	if err := checkPath(target); err != nil {
		return err
	}
	if h.calls.under(mountKey(target)) {
		return fmt.Errorf("unmount %s: %w", target, ErrHangs) // it may end as a mount
	}
	for range maxLayers {
		p, err := h.Find(target)
		if err != nil {
			return err
		}
		if p == nil {
			return removePath(target)
		}
		if err := h.umount(ctx, p, h.gone(p)); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: more than %d mounts on top of each other", target, maxLayers)
}

// mountKey is what calls that mount or unmount at a path wait for, and not the
// device: a bind mount can go while another call waits for that.
func mountKey(target string) string { return "mount at " + target }

// umount takes the topmost mount at a path away.
func (h *Host) umount(ctx context.Context, p *Point, lazy bool) error {
	args := []string{"--no-canonicalize", p.Path}
	if lazy {
		args = append([]string{"--lazy"}, args...)
	}
	ctx, cancel := context.WithTimeout(ctx, unmountWithin)
	defer cancel()
	r, err := h.program(ctx, program.Call{Name: "umount", Args: args}, mountKey(p.Path))
	switch {
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrHangs):
		return fmt.Errorf("unmount %s: %w: it goes on when the device %s does, or gives up", p.Path, ErrHangs, p.Source)
	case err != nil:
		return fmt.Errorf("unmount %s: %w", p.Path, err)
	case strings.Contains(r.Message, "busy"):
		return fmt.Errorf("unmount %s: %w: %s", p.Path, ErrInUse, r.Message)
	case strings.Contains(r.Message, "not mounted"):
		return nil // somebody was quicker
	}
	return r.Failed("umount")
}

// removePath removes an empty directory, or the file a device was bound to.
func removePath(target string) error {
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
