package iscsi

import (
	"cmp"
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// collector finds the commands of a session that is over: those sent, in
// order of sending, then those that never were, in order of submission.
type collector struct {
	m    *machine
	cmds []*blk.Command
}

var lostVerdict = blk.Verdict{Class: blk.PathLost, Status: blk.IOError}

// sent finds what was put into a send, answered early or not at all. A task
// that is not live may be in a submitter's hands: it is not looked at.
func (c *collector) sent() {
	for i := range c.m.tasks.table {
		if k := &c.m.tasks.table[i]; k.live.Load() != 0 && k.lun != nil {
			c.cmds = append(c.cmds, k.cmd)
		}
	}
	for _, k := range c.m.limbo {
		if k.lun != nil {
			c.cmds = append(c.cmds, k.cmd)
		}
	}
	slices.SortFunc(c.cmds, func(a, b *blk.Command) int { return cmp.Compare(a.Seq, b.Seq) })
	c.unsent()
}

// unsent finds what waits, and what was pushed since.
func (c *collector) unsent() {
	t := &c.m.tx
	t.waiting.pushFront(&t.parked)
	t.waiting.push(t.inbox.Drain())
	for t.waiting.head != nil {
		cmd := t.waiting.pop()
		if c.lun(cmd) != nil {
			c.cmds = append(c.cmds, cmd)
		}
	}
}

func (c *collector) lun(cmd *blk.Command) *LUN { return c.m.tasks.table[cmd.Tag&0xffff].lun }

func (c *collector) count(l *LUN) (n int) {
	for _, cmd := range c.cmds {
		if c.lun(cmd) == l {
			n++
		}
	}
	return n
}

// chain links the commands of l.
func (c *collector) chain(l *LUN) (first *blk.Command, n int) {
	var last *blk.Command
	for _, cmd := range c.cmds {
		if c.lun(cmd) != l {
			continue
		}
		cmd.Verdict, cmd.Next = lostVerdict, nil
		if last == nil {
			first = cmd
		} else {
			last.Next = cmd
		}
		last = cmd
		n++
	}
	return first, n
}
