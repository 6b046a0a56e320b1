package nvmetcp

import (
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/wire"
)

// Recovery within a controller: Abort for a command that is too old. A command
// aborted is one completed, with a status that says so: only then it is not in
// doubt (I3). What that cannot end, the end of the controller does.

// review looks for tasks that are too old. Reader only; the ticker asks for it.
func (q *queue) review(now, limit, patience uint32) error {
	for i := range q.extra {
		k, x := q.Tasks.At(i), &q.extra[i]
		if !k.Live() || q.Tasks.IsStanding(k) {
			continue
		}
		switch age := k.Age(now); {
		case age < limit:
		case x.ns == nil || age >= limit+patience:
			return ErrCommandTimeout
		case !x.aborting:
			x.aborting = q.c.abort(q.id, uint16(k.ID()))
		}
	}
	return nil
}

// abort sends Abort for a command of a queue; false: not now, there are as many as
// the controller takes at once.
func (c *Controller) abort(sqid, cid uint16) bool {
	if c.aborts.Add(1) > int32(min(int(c.id.Aborts)+1, maxAborts)) {
		c.aborts.Add(-1)
		return false
	}
	r := &request{entry: nvme.Abort(sqid, cid)}
	if !c.admin.NewControl(&r.Control) {
		c.aborts.Add(-1)
		return false
	}
	// Whatever the answer: the command's own completion counts, or its absence.
	r.OnDone = func() { c.aborts.Add(-1) }
	c.admin.renew(r.Task, nil, r)
	c.admin.PushControl(&r.Control)
	c.admin.link.Kick()
	return true
}

// Woken implements wire.Owner.
func (q *queue) Woken() error {
	if q.reviewWanted.Swap(false) {
		return q.review(q.Clock.Now(), wire.Ticks(q.c.cfg.CommandTimeout), wire.Ticks(abortTimeout))
	}
	return nil
}
