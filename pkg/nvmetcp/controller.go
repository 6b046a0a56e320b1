package nvmetcp

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/poll"
	"github.com/csi-mpath/csi-mpath/pkg/wire"
)

// Controller is one live NVMe controller: an admin connection and its I/O
// connections. It lives and dies as a whole: none of its connections is made
// again. Its goroutines are those of its links, a ticker, and a keeper that
// reads what events point to; they end with it.
type Controller struct {
	cfg   Config
	base  time.Time
	clock *wire.Clock
	// Constant once Dial has returned.
	admin  *queue
	queues []*queue // of I/O, by lane
	caps   nvme.Caps
	id     nvme.Controller
	info   Info

	// events is what the keeper is to look at, as bits. Written by the admin
	// queue's reader, taken by the keeper, which is woken after.
	events     atomic.Uint32
	wakeKeeper chan struct{} // capacity 1

	aborts atomic.Int32 // Abort commands that are out; readers and the admin queue's sender

	cause atomic.Pointer[ControllerError] // first cause of the end
	done  chan struct{}

	// telling is held while the keeper tells sinks, so that Namespace.Close can wait.
	telling sync.Mutex

	mu     sync.Mutex // guards what follows, and changes of the two sets
	left   int        // readers of queues
	dead   bool
	groups map[uint32]uint32 // ANA group of the namespaces identified

	// all are the queues that run, in the order they were made: replaced as a whole,
	// while the controller is brought up. A stale one is short of the newest.
	all atomic.Pointer[[]*queue]
	// namespaces is replaced as a whole. A stale set misses events of one just added.
	namespaces atomic.Pointer[[]*Namespace]
}

// Info is what bringing up a controller found out.
type Info struct {
	CNTLID uint16
	Queues int  // I/O queues granted and connected
	Depth  int  // commands of one I/O queue
	TBKAS  bool // traffic based keep alive: it doubles the fence's ticks
	// KATO is the keep alive timeout in force, CQT the controller's command
	// quiesce time: 0 if it reports none.
	KATO, CQT     time.Duration
	ANATT         time.Duration // longest time an ANA group may be in transition; 0: no ANA
	Local, Remote net.Addr      // of the admin connection
}

// newController makes one without connections.
func newController(cfg Config) *Controller {
	c := &Controller{cfg: cfg, base: time.Now(), wakeKeeper: make(chan struct{}, 1), done: make(chan struct{}), groups: map[uint32]uint32{}}
	c.clock = wire.NewClock(func() int64 { return int64(time.Since(c.base)) }, c.outstanding)
	c.all.Store(new([]*queue))
	c.namespaces.Store(new([]*Namespace))
	return c
}

// Info returns what bringing it up found out.
func (c *Controller) Info() Info { return c.info }

// Config is the configuration, defaults filled in.
func (c *Controller) Config() Config { return c.cfg }

// SetPolling changes how the readers of the I/O queues wait, at once.
func (c *Controller) SetPolling(p poll.Polling) {
	for _, q := range c.queues {
		q.link.Sock.SetPolling(p)
	}
}

// Done is closed when the controller is over and every sink was told.
func (c *Controller) Done() <-chan struct{} { return c.done }

// Err is why the controller is ending or over; nil while it lives.
func (c *Controller) Err() error {
	if e := c.cause.Load(); e != nil {
		return e
	}
	return nil
}

// Stats are system calls of all connections, and answers to commands that were
// not outstanding, so far.
func (c *Controller) Stats() (recvs, sends, stale uint64) {
	for _, q := range *c.all.Load() {
		recvs += q.link.Sock.Stats.Recvs.Load()
		sends += q.link.Sock.Stats.Sends.Load()
		stale += q.Tasks.Stale.Load()
	}
	return recvs, sends, stale
}

// Abort ends the controller at once: its sockets are reset, and every command
// goes to its sink's Lost. It does not wait for that: see Done.
func (c *Controller) Abort(cause error) { c.fail(cause) }

// FenceBound is how long after the abort of its sockets the controller may
// still execute what it was sent (I3): (TBKAS ? 3 : 2)·KATO + CQT.
func (c *Controller) FenceBound() time.Duration {
	return fenceBound(c.info.TBKAS, c.info.KATO, c.info.CQT)
}

// Shutdown ends the controller in order (CC.SHN, then CSTS.SHST). nil means that
// it acknowledged: everything it was sent is over, which is proof of a fence (I3).
// Commands still outstanding are lost. After it the controller is over in any case.
func (c *Controller) Shutdown(ctx context.Context) error {
	c.shut()
	cc := c.config()
	cc.Shutdown = nvme.ShutdownNormal
	limit := max(time.Duration(c.id.ShutdownLatency)*time.Microsecond, c.cfg.CommandTimeout)
	err := c.setConfig(ctx, cc, limit, func(s nvme.ControllerState) bool { return s.Shutdown == nvme.ShutdownComplete })
	c.fail(ErrShutdown)
	select {
	case <-c.done:
	case <-ctx.Done():
	}
	return err
}

// shut refuses all further commands of namespaces.
func (c *Controller) shut() {
	for _, n := range *c.namespaces.Load() {
		n.shut()
	}
}

// adopt makes q one of the controller's, and runs it.
func (c *Controller) adopt(q *queue) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.cause.Load(); e != nil {
		return e
	}
	all := append(slices.Clone(*c.all.Load()), q)
	c.all.Store(&all)
	c.left++
	q.link.Run()
	return nil
}

// drop ends a queue that the controller does not have after all.
func (c *Controller) drop(q *queue) {
	q.fate.Store(queueDropped)
	c.mu.Lock()
	all := slices.DeleteFunc(slices.Clone(*c.all.Load()), func(o *queue) bool { return o == q })
	c.all.Store(&all)
	c.mu.Unlock()
	q.link.Stop()
}

// outstanding reports whether any command is, on any queue.
func (c *Controller) outstanding() bool {
	for _, q := range *c.all.Load() {
		if q.Tasks.Outstanding() {
			return true
		}
	}
	return false
}

// fail notes the first cause and aborts every socket. It returns when nobody is
// in a system call on any of them. Any goroutine.
func (c *Controller) fail(cause error) {
	var e *ControllerError
	if !errors.As(cause, &e) {
		e = &ControllerError{Portal: c.cfg.Portal, Subsystem: c.cfg.Subsystem, Err: cause}
	}
	c.cause.CompareAndSwap(nil, e)
	c.mu.Lock() // no queue is adopted from here
	all := *c.all.Load()
	c.mu.Unlock()
	for _, q := range all {
		q.link.Stop()
	}
}

// retired takes note that one queue's sender and reader are gone, and their
// socket. The last one hands every command back.
func (c *Controller) retired() {
	c.mu.Lock()
	c.left--
	if c.left > 0 {
		c.mu.Unlock()
		return
	}
	c.dead = true
	all := *c.namespaces.Load()
	c.mu.Unlock()
	for _, n := range all {
		n.shut()
	}
	for _, n := range all {
		n.lost(c.Err())
	}
	close(c.done)
}
