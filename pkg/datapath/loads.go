package datapath

import "github.com/csi-mpath/csi-mpath/pkg/pathsel"

// others is what the other lanes have in flight on the paths of one group, as
// of the last look. The runner's.
//
// A look reads a cache line per lane and path, most of them just written by
// another CPU: several times what the rest of a pick costs. So a lane that is
// busy looks again only after lookEvery commands, and one that was idle at
// once: what it saw may be old. Its own load is always exact, and with one lane
// there is no other. A stale sum picks a busier path for a few commands.
type others struct {
	group []*live
	until uint64 // by the State's count of picks
	loads [pathsel.MaxPaths]uint64
}

// beginBatch tells the selector what it needs, once per batch.
func (l *Lane) beginBatch(group []*live) {
	l.selector = l.dev.pathSelector()
	l.pick.Begin(len(group))
	needs := l.selector.Needs()
	if needs == pathsel.NeedsNothing {
		return
	}
	if lanes := int(l.dev.laneTop.Load()); lanes > 1 {
		l.seeOthers(group, lanes, needs)
	} else {
		for i, lv := range group {
			l.pick.Set(i, lv.loads[l.id].Packed())
		}
	}
	if needs == pathsel.NeedsHistory {
		l.beginHistory(group)
	}
}

// seeOthers tells the sums over all lanes, from a new look if the last is old.
func (l *Lane) seeOthers(group []*live, lanes int, needs pathsel.Needs) {
	o, own := &l.others, uint64(0)
	if fresh := l.pick.Picks() < o.until && sameGroup(group, o.group); fresh && needs != pathsel.NeedsHistory {
		for i, lv := range group {
			mine := lv.loads[l.id].Packed()
			l.pick.Set(i, mine+o.loads[i])
			own |= mine
		}
		if own != 0 {
			return
		}
	}
	o.group, o.until = group, l.pick.Picks()+lookEvery
	for i, lv := range group {
		o.loads[i] = lv.loadBut(int(l.id), lanes)
		l.pick.Set(i, lv.loads[l.id].Packed()+o.loads[i])
	}
}

// sameGroup: groups are immutable, so one is known by where it lies.
func sameGroup(a, b []*live) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// loadBut sums what the first lanes but one have in flight on the path.
func (lv *live) loadBut(lane, lanes int) (packed uint64) {
	for k := range lv.loads[:lanes] {
		if k != lane {
			packed += lv.loads[k].Packed()
		}
	}
	return packed
}

func (l *Lane) beginHistory(group []*live) {
	now := l.dev.now()
	l.pick.SetNow(now)
	for i, lv := range group {
		if l.pick.Idle(i) {
			lv.history.Began(now)
		}
		l.pick.SetHistory(i, &lv.history)
	}
}
