package datapath

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// What the owner of a device asks of it while it works.

// SetNoPathTimeout changes how long I/O is held while no path is usable. The
// clock begins anew.
func (d *Device) SetNoPathTimeout(t time.Duration) {
	d.mu.Lock()
	if d.noPath != nil {
		d.noPath.Stop()
		d.noPath = nil
	}
	d.cfg.NoPathTimeout = t
	d.mode.And(^uint32(modeNoPath))
	d.noPathLocked(d.table.Load().best() != nil)
	d.mu.Unlock()
	d.kickAll()
}

// SetFailback changes when I/O returns to a better group, from the next chance on.
func (d *Device) SetFailback(t time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cfg.Failback = t
}

// Fail ends all I/O with errors, for good: what is not on a wire is never sent
// (I5). Paths stay, for what they carry to be answered or fenced.
func (d *Device) Fail() {
	d.mode.Or(modeShutdown)
	d.doubt.wake()
	d.kickAll()
}

// Settle waits until everything is answered, and every write in doubt is fenced
// (I3).
func (d *Device) Settle(ctx context.Context) error {
	if n, fences, err := d.settled(ctx); err != nil {
		return fmt.Errorf("volume %s: %d requests are unanswered, and %d lost connections have writes in doubt: %w", d.cfg.Name, n, fences, err)
	}
	return nil
}

// Rescan has every live path read the volume's size again, and returns it. Paths
// that disagree are an error that names them: growth ends when all of them show it.
func (d *Device) Rescan(ctx context.Context) (size uint64, err error) {
	before := map[*live]uint64{}
	d.mu.Lock()
	for _, p := range d.paths {
		if p.live != nil {
			before[p.live] = p.looks
			p.live.evidence.Or(uint32(blk.CapacityChanged))
			p.poke()
		}
	}
	d.mu.Unlock()
	t := time.NewTicker(drainPoll)
	defer t.Stop()
	for {
		if seen, all := d.rescanned(before); all {
			return agreed(seen)
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("volume %s: not every path has told its size yet: %w", d.cfg.Name, ctx.Err())
		case <-t.C:
		}
	}
}

// shown is the size that a path shows.
type shown struct {
	path string
	size uint64
}

// rescanned is what the paths show that are live still; all: each of them looked
// since before.
func (d *Device) rescanned(before map[*live]uint64) (seen []shown, all bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.paths {
		looks, asked := before[p.live]
		switch {
		case p.live == nil || !asked:
		case p.looks == looks:
			return nil, false
		default:
			seen = append(seen, shown{p.tr.Name(), p.seen.Limits.Size})
		}
	}
	return seen, true
}

func agreed(seen []shown) (uint64, error) {
	if len(seen) == 0 {
		return 0, errors.New("no path works: nobody can tell the size")
	}
	if slices.ContainsFunc(seen, func(s shown) bool { return s.size != seen[0].size }) {
		return 0, fmt.Errorf("the paths show different sizes: %v: try again when the storage told all of them", seen)
	}
	return seen[0].size, nil
}
