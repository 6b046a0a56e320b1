package nvmetcp

import (
	"context"
	"net"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/poll"
)

// Controller is one live NVMe controller: an admin connection and its I/O
// connections. It lives and dies as a whole: none of its connections is made
// again.
type Controller struct{}

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

// Dial brings up a controller: it connects to cfg.Portal, authenticates, enables
// the controller and connects its I/O queues. ctx, ConnectTimeout and
// LoginTimeout bound it. Errors are ControllerErrors that wrap ErrAuth,
// ErrForbidden, ErrNotFound, ErrUnavailable, ErrViolation or what the network
// said.
func Dial(ctx context.Context, cfg Config) (*Controller, error) {
	return nil, &ControllerError{Portal: cfg.Portal, Subsystem: cfg.Subsystem, Err: ErrClosed}
}

// Info returns what bringing it up found out.
func (c *Controller) Info() Info { return Info{} }

// Config is the configuration, defaults filled in.
func (c *Controller) Config() Config { return Config{} }

// SetPolling changes how the readers of the I/O queues wait, at once.
func (c *Controller) SetPolling(p poll.Polling) {}

// Done is closed when the controller is over and every sink was told.
func (c *Controller) Done() <-chan struct{} { return nil }

// Err is why the controller is ending or over; nil while it lives.
func (c *Controller) Err() error { return nil }

// Stats are system calls of all connections, and answers to commands that were
// not outstanding, so far.
func (c *Controller) Stats() (recvs, sends, stale uint64) { return 0, 0, 0 }

// Abort ends the controller at once: its sockets are reset, and every command
// goes to its sink's Lost. It does not wait for that: see Done.
func (c *Controller) Abort(cause error) {}

// Shutdown ends the controller in order (CC.SHN, then CSTS.SHST). nil means that
// it acknowledged: everything it was sent is over, which is proof of a fence (I3).
// Commands still outstanding are lost. After it the controller is over in any case.
func (c *Controller) Shutdown(ctx context.Context) error { return ErrClosed }

// FenceBound is how long after the abort of its sockets the controller may
// still execute what it was sent (I3): (TBKAS ? 3 : 2)·KATO + CQT.
func (c *Controller) FenceBound() time.Duration { return 0 }

// FenceBound is what to assume before a controller was ever reached: with TBKAS,
// and the default quiesce time.
func (c *Config) FenceBound() time.Duration { return 0 }
