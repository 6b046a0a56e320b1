package datapath

import (
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/pathsel"
)

// table is the PathTable: an immutable snapshot of the paths usable now,
// best group first. Lanes load it once per batch; only Device.rebuild, under
// the control lock, makes a new one. A lane with a stale table submits to a
// retired path, which refuses, or to one less good than the best, once.
type table struct {
	groups [][]*live
	// size is the device's size in bytes at the time.
	size uint64
	// since is when the device became usable after it was not.
	since time.Time
}

// best returns the best usable group, or nil when no path is usable now.
func (t *table) best() []*live {
	if len(t.groups) == 0 {
		return nil
	}
	return t.groups[0]
}

// buildTable sorts the live paths into groups by access state. With no
// optimized or non-optimized path, none is usable now.
func buildTable(lives []*live, size uint64) *table {
	t := &table{size: size}
	for _, want := range []Access{Optimized, NonOptimized} {
		var g []*live
		for _, l := range lives {
			if l.access == want && !l.suspended && len(g) < pathsel.MaxPaths {
				g = append(g, l)
			}
		}
		if len(g) > 0 {
			t.groups = append(t.groups, g)
		}
	}
	return t
}
