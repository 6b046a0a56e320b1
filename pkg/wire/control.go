package wire

import (
	"sync/atomic"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// The fates of a control.
const (
	FateOpen = iota
	FateAnswered
	FateAbandoned
)

// Control is anything but a blk.Command of a unit. It is made by whoever wants
// it, encoded by the sender, ended by the reader or the retirer, once. What the
// protocol knows of it is in a table of the codec's, at the task's index.
type Control struct {
	Task *Task // nil for what has no answer
	Cmd  blk.Command
	// Gated: it is I/O to a unit, and kept while that is in question.
	Gated *Gate
	Out   []byte // payload

	// Fate says whether the answer or the caller's giving up came first: one of
	// reader and caller takes it from FateOpen. The sender reads it and does not
	// send what nobody waits for.
	Fate atomic.Uint32

	OnDone func() // called by the reader when it ended; must not block

	Done chan struct{} // closed at the end
	Err  error         // valid then
}

// NewControl takes a tag for a control; false when there is none. Whoever gets
// it pushes it, or ends it.
func (f *Flow) NewControl(c *Control) bool {
	k := f.Tasks.getControl()
	if k == nil {
		return false
	}
	f.adopt(c, k)
	return true
}

// NewStanding takes the i-th standing task for a control that waits at the peer
// until something happens. It must not be out.
func (f *Flow) NewStanding(c *Control, i int) {
	f.adopt(c, f.Tasks.renew(f.Tasks.At(f.Tasks.standing+i)))
}

func (f *Flow) adopt(c *Control, k *Task) {
	c.Task, c.Done = k, make(chan struct{}, 1)
	k.Cmd, k.Ctl = &c.Cmd, c
	c.Cmd.Tag = k.id
	c.Cmd.Op = blk.Flush // moves no data unless said otherwise
}

// PushControl queues a control as a command among the others.
func (f *Flow) PushControl(c *Control) { f.inbox.Push(&c.Cmd) }

// Publish tells the reader of a control that goes another way, before it does:
// the answer finds the task whenever it comes. It returns the number of commands
// sent before. Sender only.
func (f *Flow) Publish(c *Control) (seq uint64) {
	f.publish(c.Task)
	return f.seq
}

// FinishControl ends a control and gives its tag back. Reader, or the sender of
// one that nobody waits for.
func (f *Flow) FinishControl(k *Task, err error) {
	c := k.Ctl
	c.Err = err
	k.live.Store(0)
	f.Tasks.Put(k)
	close(c.Done)
	if c.OnDone != nil {
		c.OnDone()
	}
}
