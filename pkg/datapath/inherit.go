package datapath

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// inherit takes over what a dead predecessor left in doubt (I3 across a
// restart), before any path is dialled: every path it was on must be fenced,
// counted from now, which is later than the predecessor's death.
func (d *Device) inherit() {
	names := make([]string, 0, len(d.paths))
	for _, p := range d.paths {
		names = append(names, p.tr.Name())
	}
	left, readable := d.ledger.inherit(d.cfg.LedgerKey, names, d.cfg.Replays)
	d.inheritCache()
	if !readable {
		d.inheritEverything()
	} else if n := d.inheritRanges(left); n > 0 {
		d.emit(Event{Kind: Inherited, Detail: fmt.Sprintf("%d writes of a process that died are in doubt on %d paths", len(left), n)})
	}
	d.ledger.commit()
}

// inheritRanges returns on how many paths something is in doubt.
func (d *Device) inheritRanges(left []inherited) (paths int) {
	reg := &d.doubt
	reg.mu.Lock()
	defer reg.mu.Unlock()
	fences := map[int]*fence{}
	// The ledger does not keep the age. What was answered counts as older than
	// what was not: its late copy must not land over a replay.
	slices.SortStableFunc(left, func(a, b inherited) int {
		return cmp.Compare(unanswered(a), unanswered(b))
	})
	for _, in := range left {
		p := d.pathOf(in.path)
		f := fences[in.path]
		if f == nil {
			f = reg.newFence(p, 0)
			fences[in.path] = f
		}
		reg.enter(&doubt{op: in.op, off: in.off, end: in.end, from: in.from, state: in.state,
			orphan: in.state == pending, fence: f})
	}
	return len(fences)
}

func unanswered(in inherited) int {
	if in.state == pending {
		return 1
	}
	return 0
}

// pathOf is the path with the index, or one that stands for a portal the volume
// no longer has: only time fences it.
func (d *Device) pathOf(i int) *Path {
	if i >= 0 {
		return d.paths[i]
	}
	return &Path{dev: d, tr: departed{d.paths[0].tr}, index: MaxPaths - 1}
}

// departed is the transport of a portal that is not configured any more.
type departed struct{ Transport }

// Name implements Transport.
func (departed) Name() string { return "a portal no longer configured" }

// inheritEverything is the answer to a ledger that can not be read: every
// write may be in doubt on every path.
func (d *Device) inheritEverything() {
	d.doubt.mu.Lock()
	for _, p := range d.paths {
		d.doubt.enter(&doubt{op: blk.Write, end: ^uint64(0), state: told, fence: d.doubt.newFence(p, 0)})
	}
	d.doubt.mu.Unlock()
	d.emit(Event{Kind: Inherited, Detail: "the in-flight table of the process before can not be read: writes wait until every path is fenced"})
}
