package nvmetcp

import (
	"context"
	"errors"
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
)

// What the keeper is to look at.
const (
	lookNamespaces = 1 << iota // the changed-namespace log
	lookReservation
	lookState // CSTS: an error event may mean a fatal status
)

// watchEvents asks for the events that are evidence, and waits for them.
func (c *Controller) watchEvents(ctx context.Context) error {
	if want := c.id.Events & (nvme.AsyncNamespace | nvme.AsyncANA); want != 0 {
		if _, err := c.do(ctx, "configure events", nvme.SetFeature(0, nvme.FeatureAsyncConfig, want), nil); errors.As(err, new(nvme.Status)) {
			return nil // it has none then: states and sizes are read every so often anyway
		} else if err != nil {
			return err
		}
	}
	for i := range min(int(c.id.AsyncEvents)+1, maxEvents) {
		c.await(i)
	}
	c.admin.link.Kick()
	return nil
}

// await sends the i-th Asynchronous Event Request. The reader sends it again when
// it was answered: at once, so that no event waits for one (B-14).
func (c *Controller) await(i int) {
	r := &request{entry: nvme.AsyncEvent()}
	c.admin.NewStanding(&r.Control, i)
	c.admin.renew(r.Task, nil, r)
	r.OnDone = func() {
		if r.answer.Status.OK() {
			c.event(nvme.ParseEvent(r.answer.Result))
			c.await(i)
		}
	}
	c.admin.PushControl(&r.Control)
}

// event takes note of an event. Admin reader only: it must not wait.
func (c *Controller) event(e nvme.Event) {
	all := *c.namespaces.Load()
	switch e {
	case nvme.ANAChanged:
		// The log is read by whoever wants to know; that re-arms the event.
		for _, n := range all {
			n.evidence(e.Evidence())
		}
		return
	case nvme.NamespaceChanged:
		for _, n := range all { // which ones, the log says: nothing is sent before (I1)
			n.suspect()
		}
		c.look(lookNamespaces)
	case nvme.ReservationNoticed:
		// Whose it is the log says, but who holds a reservation must not send before
		// that is known. Once the log is read, and the event armed, it is told again.
		for _, n := range all {
			n.evidence(e.Evidence())
		}
		c.look(lookReservation)
	default:
		c.look(lookState)
	}
}

// look gives the keeper work.
func (c *Controller) look(at uint32) {
	c.events.Or(at)
	select {
	case c.wakeKeeper <- struct{}{}:
	default:
	}
}

// keeper is the goroutine that reads what events point to. What it cannot read is
// taken as the worst.
func (c *Controller) keeper() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for {
		select {
		case <-c.done:
			return
		case <-c.wakeKeeper:
		}
		at := c.events.Swap(0)
		if at&lookNamespaces != 0 {
			c.changedNamespaces(ctx)
		}
		if at&lookReservation != 0 {
			_ = c.getLog(ctx, nvme.LogRequest{Page: nvme.LogReservation}, make([]byte, nvme.ReservationNoticeLen))
			c.tell(func(n *Namespace) { n.evidence(nvme.ReservationNoticed.Evidence()) })
		}
		if at&lookState != 0 {
			_ = c.getLog(ctx, nvme.LogRequest{Page: nvme.LogError}, make([]byte, nvme.ErrorEntryLen))
			if v, err := c.getProperty(ctx, "CSTS", nvme.RegCSTS); err == nil && nvme.ParseState(uint32(v)).Fatal {
				c.fail(ErrFailed)
			}
		}
	}
}

// changedNamespaces reads which namespaces changed, and lets the others go on.
func (c *Controller) changedNamespaces(ctx context.Context) {
	// Taken before the log is read: a change after it suspects again.
	suspects := map[*Namespace]uint32{}
	for _, n := range *c.namespaces.Load() {
		suspects[n] = n.suspected.Load()
	}
	b := make([]byte, nvme.IdentifyLen)
	err := c.getLog(ctx, nvme.LogRequest{Page: nvme.LogChangedNamespaces, NSID: nvme.AllNamespaces}, b)
	ids, all := nvme.ParseChanged(nil, b)
	c.tell(func(n *Namespace) {
		if err != nil || all || slices.Contains(ids, n.nsid) {
			n.suspected.Store(0)
			n.evidence(nvme.NamespaceChanged.Evidence())
		} else if ticket := suspects[n]; ticket != 0 && n.suspected.CompareAndSwap(ticket, 0) {
			n.Resume(ticket)
		}
	})
}

// tell calls f for every namespace. Keeper only.
func (c *Controller) tell(f func(*Namespace)) {
	c.telling.Lock()
	defer c.telling.Unlock()
	for _, n := range *c.namespaces.Load() {
		f(n)
	}
}

// suspect shuts the gate until it is known whether the event was about n. Admin
// reader only.
func (n *Namespace) suspect() {
	ticket, first := n.gate.Doubt()
	switch {
	case first || n.suspected.Load() == ticket-1 && ticket != 1: // nothing else is in question
		n.suspected.Store(ticket)
	default:
		n.suspected.Store(0)
		n.sink.Evidence(blk.IdentityChanged) // for what came before, it is told again
	}
}
