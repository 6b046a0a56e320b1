package nvmetcp

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/wire"
)

// Namespace is one namespace seen through one controller: a queue of
// blk.Commands whose outcomes go to its sink. Commands may carry vectors.
type Namespace struct {
	c    *Controller
	nsid uint32
	sink blk.Sink
	gate wire.Gate
	// units are the namespace in each I/O queue. Constant.
	units []wire.Unit

	// suspected is the gate's ticket while only an event whose log is not read yet
	// keeps it shut, else 0. Written by the admin queue's reader and the keeper.
	suspected atomic.Uint32
	// form says how commands are encoded. Written by SetProfile, read by the
	// senders once per command; a stale one is as good as the new one a moment ago.
	form atomic.Pointer[form]
}

// Namespace opens a namespace: at most depth of its commands are in each I/O
// queue. Close it when done. If the controller is over already, sink.Lost is
// called before Namespace returns. Until SetProfile was called Submit refuses
// everything.
func (c *Controller) Namespace(nsid uint32, depth int, sink blk.Sink) *Namespace {
	n := &Namespace{c: c, nsid: nsid, sink: sink, units: make([]wire.Unit, len(c.queues))}
	for i, q := range c.queues {
		n.units[i].Init(q.Flow, uint64(nsid), min(max(depth, 1), q.depth), &n.gate, sink)
	}
	c.mu.Lock()
	old := *c.namespaces.Load()
	dead := c.dead || len(old) >= maxNamespaces
	if !dead {
		all := append(append(make([]*Namespace, 0, len(old)+1), old...), n)
		c.namespaces.Store(&all)
	}
	c.mu.Unlock()
	if dead {
		n.shut()
		err := c.Err()
		if err == nil {
			err = c.cfg.errorf("more than %d namespaces of one controller", maxNamespaces)
		}
		sink.Lost(nil, err)
	}
	return n
}

// SetProfile says how the namespace is addressed and what it can do.
func (n *Namespace) SetProfile(p *nvme.Profile) { n.form.Store(newForm(p)) }

// at is the lane's queue, and the lane's number among those that share it.
func (n *Namespace) at(lane int) (queue, home int) { return lane % len(n.units), lane / len(n.units) }

// Submit takes a command; lane picks the I/O queue. False means no tag, no share
// of the queue, or no controller now: nothing was queued. It never blocks; Kick
// sends.
func (n *Namespace) Submit(c *blk.Command, lane int) bool {
	if n.form.Load() == nil {
		return false
	}
	i, home := n.at(lane)
	k := n.units[i].Take(home)
	if k == nil {
		return false
	}
	n.c.queues[i].renew(k, n, nil)
	n.units[i].Push(k, c)
	return true
}

// Kick sends what was submitted with the same lane, on the caller's goroutine if
// nobody else is sending. It never blocks.
func (n *Namespace) Kick(lane int) {
	i, _ := n.at(lane)
	n.c.queues[i].link.Kick()
}

// WatchReservation says that the namespace is held by a reservation: what may have
// ended it stops the senders like a doubt about its identity. Before SetProfile.
func (n *Namespace) WatchReservation() { n.gate.WatchReservation() }

// Gate is what Resume wants: ask before the identification begins. 0: open.
func (n *Namespace) Gate() uint32 { return n.gate.Ticket() }

// Resume lets the namespace send again after an identification proved that it
// is still the same (I1), unless new evidence came since Gate returned upTo.
func (n *Namespace) Resume(upTo uint32) {
	n.gate.Open(upTo)
	for _, q := range n.c.queues {
		q.Unpark()
		q.link.Kick()
	}
}

// Latency is a moving average of sampled command times; 0 before the first.
func (n *Namespace) Latency() time.Duration {
	var sum time.Duration
	used := 0
	for i := range n.units {
		if d := n.units[i].Latency(); d > 0 {
			sum += d
			used++
		}
	}
	return sum / time.Duration(max(used, 1))
}

// Samples tells how many commands were sampled, the time they took together,
// and since when the oldest one in flight is out, 0 for none.
func (n *Namespace) Samples() (count uint64, took, waiting time.Duration) {
	for i := range n.units {
		k, t, w := n.units[i].Samples()
		count, took, waiting = count+k, took+t, max(waiting, w)
	}
	return count, took, waiting
}

// Inflight counts the commands submitted and not handed back.
func (n *Namespace) Inflight() (sum int) {
	for i := range n.units {
		sum += n.units[i].Inflight()
	}
	return sum
}

// ReadFirst reads the first block and throws it away: a probe that waits at the
// gate like all I/O. An answer of any kind is no error.
func (n *Namespace) ReadFirst(ctx context.Context) error {
	f := n.form.Load()
	if f == nil {
		return n.c.cfg.errorf("BUG: namespace %d was not identified", n.nsid)
	}
	_, _, err := n.Exec(ctx, nvme.Read(n.nsid, 0, 1, 0), make([]byte, 1<<f.shift), nil)
	return err
}

// Exec sends one I/O command and waits for its completion: for what is no
// blk.Command, such as reservations. It waits with the others while the
// namespace's identity is in question (I1). Data to the namespace is out, data
// from it goes to in; one of them is nil; got is how much came. A status other
// than success is no error.
func (n *Namespace) Exec(ctx context.Context, e nvme.Command, in, out []byte) (a nvme.Completion, got int, err error) {
	return n.c.queues[0].exec(ctx, e, &n.gate, in, out)
}

// evidence tells the sink; a doubt about the identity stops the senders first.
func (n *Namespace) evidence(e blk.Evidence) { n.units[0].Evidence(e) }

func (n *Namespace) shut() {
	for i := range n.units {
		n.units[i].Close()
	}
}

// lost hands everything that is out to the sink. Retirer only.
func (n *Namespace) lost(cause error) {
	units := make([]*wire.Unit, len(n.units))
	for i := range units {
		units[i] = &n.units[i]
	}
	n.sink.Lost(wire.Lose(units...), cause)
}

// Close gives the namespace up: it waits until its commands are handed back, and
// no call to its sink comes after it returns. Not to be called by a sink.
func (n *Namespace) Close() {
	c := n.c
	for i := range n.units {
		if !n.units[i].Drain(c.done) {
			return
		}
	}
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		<-c.done
		return
	}
	var rest []*Namespace
	for _, o := range *c.namespaces.Load() {
		if o != n {
			rest = append(rest, o)
		}
	}
	c.namespaces.Store(&rest)
	c.mu.Unlock()
	for _, q := range *c.all.Load() {
		q.link.Barrier(c.done)
	}
	c.telling.Lock() // the keeper is past what it was doing
	defer c.telling.Unlock()
}
