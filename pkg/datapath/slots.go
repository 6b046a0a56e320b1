package datapath

import "github.com/csi-mpath/csi-mpath/pkg/blk"

// slots are those of a lane. They are made a chunk at a time, when a number is
// first used: an idle client has used few of its hundreds. Made by the lane's
// runner; everybody else looks only at slots that a request is in, and learned
// of it from the runner.
type slots []*chunk

type chunk struct {
	slots [slotChunk]slot
	cmds  [slotChunk]blk.Command // the first of each slot
}

func newSlots(depth int) slots { return make(slots, (depth+slotChunk-1)/slotChunk) }

// at is slot i, which was used before.
func (t slots) at(i uint32) *slot { return &t[i/slotChunk].slots[i%slotChunk] }

// slot is slot i. Runner only.
func (l *Lane) slot(i uint32) *slot {
	if l.slots[i/slotChunk] == nil {
		l.slots[i/slotChunk] = l.newChunk(i &^ (slotChunk - 1))
	}
	return l.slots.at(i)
}

func (l *Lane) newChunk(first uint32) *chunk {
	c := &chunk{}
	for k := range c.slots {
		s := &c.slots[k]
		s.lane, s.index, s.cmds = l, first+uint32(k), c.cmds[k:k+1:k+1]
	}
	return c
}
