package wire

import (
	"cmp"
	"runtime"
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// wreck finds the commands of a flow that is over: those sent, in order of
// sending, then those that never were, in order of submission.
type wreck struct {
	f    *Flow
	cmds []*blk.Command
}

var lostVerdict = blk.Verdict{Class: blk.PathLost, Status: blk.IOError}

// Lose takes the commands of one unit out of flows that are over, for its sink's
// Lost: units are the unit in each of the flows. The sockets must be aborted,
// senders and readers gone. Retirer only, once per unit, the units all closed.
func Lose(units ...*Unit) (first *blk.Command) {
	last := &first
	for _, u := range units {
		w := wreck{f: u.flow}
		w.sent(u)
		// A Submit that came before closed either takes itself back or pushes.
		for w.unsent(u); int32(len(w.cmds)) != u.inflight.Load(); w.unsent(u) {
			runtime.Gosched()
		}
		u.inflight.Add(int32(-len(w.cmds)))
		for _, c := range w.cmds {
			c.Verdict, c.Next = lostVerdict, nil
			*last = c
			last = &c.Next
		}
	}
	return first
}

// sent finds what was put into a send, answered early or not at all. A task
// that is not live may be in a submitter's hands: it is not looked at.
func (w *wreck) sent(u *Unit) {
	for i := range w.f.Tasks.table {
		if k := &w.f.Tasks.table[i]; k.live.Load() != 0 && k.Unit == u {
			w.cmds = append(w.cmds, k.Cmd)
		}
	}
	for _, k := range w.f.limbo {
		if k.Unit == u {
			w.cmds = append(w.cmds, k.Cmd)
		}
	}
	slices.SortFunc(w.cmds, func(a, b *blk.Command) int { return cmp.Compare(a.Seq, b.Seq) })
}

// unsent finds what waits, and what was pushed since.
func (w *wreck) unsent(u *Unit) {
	f := w.f
	f.waiting.PushFront(&f.parked)
	f.waiting.Push(f.inbox.Drain())
	var rest Fifo[blk.Command, *blk.Command]
	for f.waiting.Head != nil {
		c := f.waiting.Pop()
		switch k := f.Tasks.Of(c); {
		case k.Unit == u:
			w.cmds = append(w.cmds, c)
		case k.Unit != nil: // another's turn will come
			rest.Push(c)
		}
	}
	f.waiting = rest
}
