package volume

import (
	"context"
	"fmt"
	"time"
)

// Expand makes the node see a volume that grew, and its file system fill it, all
// while it is used. required is the size that the volume has by now at least,
// bytes; 0 is any. A storage that does not show that yet on all paths is
// ErrUnavailable: try again.
func (n *Node) Expand(ctx context.Context, volume string, required int64) (size int64, err error) {
	o, err := n.begin(volume)
	if err != nil {
		return 0, err
	}
	defer n.end(o)
	size, err = n.expand(ctx, volume, required)
	return size, of(volume, "expand", err)
}

func (n *Node) expand(ctx context.Context, volume string, required int64) (int64, error) {
	st, err := n.find(volume)
	switch {
	case err != nil:
		return 0, err
	case st == nil:
		return 0, fmt.Errorf("%w: stage it first", ErrNotFound)
	case st.rec.Phase != phaseStaged || st.rec.Revoked != "":
		return 0, fmt.Errorf("%w: it is not staged: stage it first", ErrState)
	case required < 0:
		return 0, fmt.Errorf("%w: a size of %d bytes", ErrInvalid, required)
	case st.dev == nil:
		return 0, fmt.Errorf("%w: it was served before, and is not back yet: %w", ErrUnavailable, st.problem)
	}
	size, err := st.dev.Rescan(ctx)
	if err != nil {
		return 0, n.because(st, "read its size", err)
	}
	if size < required {
		return 0, fmt.Errorf("%w: its storage shows %d bytes, and %d are wanted: expand it there first", ErrUnavailable, size, required)
	}
	if err := n.sized(ctx, st, size); err != nil || st.rec.Use.Block || st.rec.Use.ReadOnly {
		return size, err
	}
	if err := n.mounted(st); err != nil {
		return 0, err
	}
	if _, err := n.cfg.Mounts.Grow(ctx, st.rec.Use.Staging); err != nil {
		return 0, n.because(st, "grow its file system", err)
	}
	return size, nil
}

// sized waits until the kernel knows a size: it is told of growth beside the I/O.
func (n *Node) sized(ctx context.Context, st *state, size int64) error {
	for {
		have, err := n.cfg.Mounts.DeviceSize(st.dev.Path())
		if err != nil || have >= uint64(size) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s has %d bytes, and not %d yet: %w", st.dev.Path(), have, size, ctx.Err())
		case <-time.After(sizePoll):
		}
	}
}
