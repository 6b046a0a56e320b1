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
	group    []*live
	until    uint64 // by the State's count of picks
	commands [pathsel.MaxPaths]uint64
	bytes    [pathsel.MaxPaths]uint64
}

// beginBatch tells the selector what it needs, once per batch.
func (l *Lane) beginBatch(group []*live) {
	l.pick.Begin(len(group))
	needs := l.dev.selector.Needs()
	if needs == pathsel.NeedsNothing {
		return
	}
	idle := true
	for i, lv := range group {
		c, b := lv.loads[l.id].Read()
		l.pick.Set(i, c, b)
		idle = idle && c == 0
	}
	lanes := int(l.dev.laneTop.Load())
	if lanes > 1 {
		l.addOthers(group, lanes, idle || needs == pathsel.NeedsHistory)
	}
	if needs == pathsel.NeedsHistory {
		l.beginHistory(group)
	}
}

// addOthers adds the other lanes' loads, from a new look if the last one is old.
func (l *Lane) addOthers(group []*live, lanes int, look bool) {
	o := &l.others
	if look || l.pick.Picks() >= o.until || !sameGroup(group, o.group) {
		o.group, o.until = group, l.pick.Picks()+lookEvery
		for i, lv := range group {
			o.commands[i], o.bytes[i] = lv.loadBut(int(l.id), lanes)
		}
	}
	for i := range group {
		l.pick.Add(i, o.commands[i], o.bytes[i])
	}
}

// sameGroup: groups are immutable, so one is known by where it lies.
func sameGroup(a, b []*live) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// loadBut sums what the first lanes but one have in flight on the path.
func (lv *live) loadBut(lane, lanes int) (commands, bytes uint64) {
	for k := range lv.loads[:lanes] {
		if k != lane {
			c, b := lv.loads[k].Read()
			commands, bytes = commands+c, bytes+b
		}
	}
	return commands, bytes
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
