package mount

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Stats are the numbers of the file system mounted at target. statfs(2) asks the file system's memory, not the device;
// where it hangs all the same, one goroutine per device waits with it, and later
// calls are told so at once (case D-20).
func (h *Host) Stats(ctx context.Context, target string) (Stats, error) {
	p, err := h.Find(target)
	if err != nil {
		return Stats{}, err
	}
	if p == nil {
		return Stats{}, fmt.Errorf("%s: %w", target, ErrNotMounted)
	}
	key := "statistics of " + p.Device
	if err := h.calls.begin(key); err != nil {
		return Stats{}, fmt.Errorf("statistics of %s: %w", target, err)
	}
	done := make(chan reading, 1)
	go func() {
		var r reading
		r.err = h.node.Statfs(target, &r.s)
		h.calls.end(key)
		done <- r
	}()
	t := time.NewTimer(statsWithin)
	defer t.Stop()
	select {
	case r := <-done:
		return r.stats(target)
	case <-ctx.Done():
		return Stats{}, fmt.Errorf("statistics of %s: %w", target, ctx.Err())
	case <-t.C:
		return Stats{}, fmt.Errorf("statistics of %s: nothing for %v: %w", target, statsWithin, ErrHangs)
	}
}

type reading struct {
	s   unix.Statfs_t
	err error
}

func (r *reading) stats(target string) (Stats, error) {
	if r.err != nil {
		return Stats{}, fmt.Errorf("statistics of %s: %w", target, r.err)
	}
	block := uint64(r.s.Frsize)
	return Stats{
		Bytes: r.s.Blocks * block, BytesUsed: (r.s.Blocks - r.s.Bfree) * block, BytesFree: r.s.Bavail * block,
		Inodes: r.s.Files, InodesUsed: r.s.Files - r.s.Ffree, InodesFree: r.s.Ffree,
	}, nil
}
