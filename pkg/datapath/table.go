package datapath

import (
	"slices"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/pathsel"
)

// tier orders the path groups, best first.
type tier uint8

// The tiers. A marginal or drained path is still better than none: its tier is
// used when no other has a path.
const (
	tierPreferred tier = iota
	tierOptimized
	tierNonOptimized
	tierMarginal
	tierDrained
	tierNone // not usable
)

var tierNames = [...]string{"preferred", "optimized", "non-optimized", "marginal", "drained", "none"}

func (t tier) String() string { return tierNames[t] }

// tier is the group a live path belongs to now. Under the control lock.
func (lv *live) tier() tier {
	switch p := lv.path; {
	case lv.suspended || !lv.access.usable():
		return tierNone
	case p.drained:
		return tierDrained
	case p.marginal:
		return tierMarginal
	case p.preferred:
		return tierPreferred
	case lv.access == Optimized:
		return tierOptimized
	}
	return tierNonOptimized
}

// table is the PathTable: an immutable snapshot of the paths usable now, the
// group in use first, then best first. Lanes load it once per batch; only
// Device.rebuild, under the control lock, makes a new one. A lane with a stale
// table submits to a retired path, which refuses, or to one less good than the
// best, once.
type table struct {
	groups [][]*live
	tiers  []tier // of groups
	// size is the device's size in bytes at the time.
	size uint64
	// since is when the device became usable after it was not.
	since time.Time
}

// best returns the group in use, or nil when no path is usable now.
func (t *table) best() []*live {
	if len(t.groups) == 0 {
		return nil
	}
	return t.groups[0]
}

// joins reports whether contiguous requests are worth joining: the group in use
// has paths that take a payload in pieces.
func (t *table) joins() bool {
	return slices.ContainsFunc(t.best(), func(lv *live) bool { return lv.facts.Vectors })
}

// buildTable sorts the live paths into groups. With none in a usable state, no
// path is usable now.
func buildTable(lives []*live, size uint64) *table {
	t := &table{size: size}
	for want := tierPreferred; want < tierNone; want++ {
		var g []*live
		for _, l := range lives {
			if l.tier() == want && len(g) < pathsel.MaxPaths {
				g = append(g, l)
			}
		}
		if len(g) > 0 {
			t.groups, t.tiers = append(t.groups, g), append(t.tiers, want)
		}
	}
	return t
}

// use moves the group of a tier to the front; false if there is none.
func (t *table) use(want tier) bool {
	i := slices.Index(t.tiers, want)
	if i < 0 {
		return false
	}
	g := t.groups[i]
	t.groups = slices.Insert(slices.Delete(t.groups, i, i+1), 0, g)
	t.tiers = slices.Insert(slices.Delete(t.tiers, i, i+1), 0, want)
	return true
}
