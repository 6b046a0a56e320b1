package nvmetcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/poll"
)

// Config describes one controller. Zero durations and counts mean the defaults
// of limits.go.
type Config struct {
	Portal    string   // host:port of the controller's TCP port
	Subsystem string   // NQN of the subsystem
	HostNQN   string   // NQN of this host
	HostID    [16]byte // host identifier: the same on all paths and after a restart
	Auth      auth.Credentials
	// Source is a local IP address or the name of an interface to bind to;
	// empty lets the kernel choose.
	Source string
	// Dial, if set, makes each connection instead of TCP: for simulators and
	// tests. What it returns must be fit for poll.NewSocket.
	Dial func(ctx context.Context, portal string) (net.Conn, error)

	// ConnectTimeout bounds each TCP connect, LoginTimeout all that follows
	// until the controller is ready for I/O.
	ConnectTimeout, LoginTimeout time.Duration
	// PathTimeout: no byte received on any connection for so long while
	// something is outstanding ends the controller; a Keep Alive goes out at
	// half of it.
	PathTimeout time.Duration
	// CommandTimeout: an I/O command unanswered for so long is aborted; if it stays
	// unanswered, or if it is an admin command, the controller ends.
	CommandTimeout time.Duration
	// KeepAlive is KATO, the keep alive timeout asked for; whole milliseconds.
	KeepAlive time.Duration
	// Polling is how the readers of the I/O queues wait (S5).
	Polling poll.Polling
	// QueueDepth is the most commands of one I/O queue, 1..maxDepth. Queues is
	// how many I/O queues are asked for, 1..maxQueues; fewer may be granted.
	QueueDepth, Queues int
	// HeaderDigest and DataDigest are demands: a controller that does not grant
	// one is refused.
	HeaderDigest, DataDigest bool
}

// withDefaults fills what is zero and refuses what cannot work.
func (c Config) withDefaults() (Config, error) {
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&c.ConnectTimeout, defaultConnectTimeout}, {&c.LoginTimeout, defaultLoginTimeout}, {&c.PathTimeout, defaultPathTimeout},
		{&c.CommandTimeout, defaultCommandTimeout}, {&c.KeepAlive, defaultKeepAlive}} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	if c.QueueDepth == 0 {
		c.QueueDepth = defaultDepth
	}
	if c.Queues == 0 {
		c.Queues = defaultQueues
	}
	return c, c.check()
}

func (c *Config) check() error {
	if _, _, err := net.SplitHostPort(c.Portal); err != nil {
		return c.errorf("the portal is not host:port")
	}
	if err := errors.Join(nvme.CheckNQN(c.Subsystem), nvme.CheckNQN(c.HostNQN)); err != nil {
		return c.wrap(err)
	}
	switch {
	case c.HostID == [16]byte{}:
		return c.errorf("the host identifier is zero: give this host a UUID of its own")
	case c.QueueDepth < 1 || c.QueueDepth > maxDepth:
		return c.errorf("queue depth %d is not in 1..%d", c.QueueDepth, maxDepth)
	case c.Queues < 1 || c.Queues > maxQueues:
		return c.errorf("%d I/O queues are not in 1..%d", c.Queues, maxQueues)
	case min(c.ConnectTimeout, c.LoginTimeout, c.PathTimeout, c.CommandTimeout) < 0:
		return c.errorf("a timeout is negative")
	case c.KeepAlive < minKeepAlive || c.KeepAlive > maxKeepAlive:
		return c.errorf("keep alive timeout %v is not in %v..%v", c.KeepAlive, minKeepAlive, maxKeepAlive)
	}
	return c.wrap(c.Auth.Check())
}

// FenceBound is what to assume before a controller was ever reached: traffic
// based keep alive, which takes longer, and a quiesce time of two seconds.
func (c *Config) FenceBound() time.Duration {
	kato := c.KeepAlive
	if kato == 0 {
		kato = defaultKeepAlive
	}
	return fenceBound(true, kato, assumedQuiesce)
}

// fenceBound is how long a controller may outlive its connections (I3).
func fenceBound(traffic bool, kato, quiesce time.Duration) time.Duration {
	if traffic {
		return 3*kato + quiesce
	}
	return 2*kato + quiesce
}

func (c *Config) errorf(format string, args ...any) error {
	return c.wrap(fmt.Errorf(format, args...))
}

// wrap names portal and subsystem of err, once.
func (c *Config) wrap(err error) error {
	var ce *ControllerError
	if err == nil || errors.As(err, &ce) {
		return err
	}
	return &ControllerError{Portal: c.Portal, Subsystem: c.Subsystem, Err: err}
}
