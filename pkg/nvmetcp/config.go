package nvmetcp

import (
	"context"
	"net"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/poll"
)

// Config describes one controller. Zero durations and counts mean the defaults
// of limits.go.
type Config struct {
	Portal    string   // host:port of the controller's TCP port
	Subsystem string   // NQN of the subsystem
	HostNQN   string   // NQN of this host
	HostID    [16]byte // host identifier: the same on all paths and after a restart
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
	// CommandTimeout: a command unanswered for so long ends the controller.
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
