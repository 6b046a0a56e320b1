package datapath

import (
	"context"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// Transport is the way to a device over one path. pkg/device adapts the
// initiators to it; the tests have a twin in memory.
type Transport interface {
	// Name is what operators call the path: its portal.
	Name() string
	// Connect brings up one incarnation of the path: dial, log in, identify. An
	// error that wraps ErrDefinite will be the same next time.
	// From its success until sink.Lost the queue takes commands. ctx bounds
	// only the attempt.
	Connect(ctx context.Context, sink blk.Sink) (Queue, error)
	// ProveDead tries to prove, without the path's own portal, that the target
	// ended everything earlier incarnations sent (I3). nil is proof.
	ProveDead(ctx context.Context) error
	// FenceBound is how long after its socket was aborted an incarnation is
	// assumed dead without proof (I3).
	FenceBound() time.Duration
}

// Queue is one live incarnation of a path.
type Queue interface {
	// Facts is what Connect learned.
	Facts() Facts
	// Submit takes a command, or returns false when it has no room or is gone:
	// then nothing was queued. lane is a hint for its tag allocator. It never
	// blocks. A command it took ends in exactly one of sink.Complete and sink.Lost.
	Submit(c *blk.Command, lane int) bool
	// Kick sends what was submitted with the same lane. It never blocks.
	Kick(lane int)
	// Refresh reads identity, size and access state again. After evidence of a
	// changed identity the queue sends nothing until Resume.
	Refresh(ctx context.Context) (Facts, error)
	// Resume lets the queue send again after Refresh proved the identity (I1).
	Resume()
	// Stats is what the incarnation counted so far.
	Stats() QueueStats
	// Probe reads one block to see how long that takes. An answer of any kind is
	// no error.
	Probe(ctx context.Context) error
	// Close ends the incarnation in order. Outstanding commands are Lost.
	Close(ctx context.Context) error
	// Abort ends it at once; Lost follows.
	Abort(cause error)
}

// QueueStats are counters of one incarnation, for tables.
type QueueStats struct {
	Latency      time.Duration // moving average of sampled answer times
	Recvs, Sends uint64        // system calls on its socket
	// Answers counts the sampled answers, Busy is the sum of their times, and
	// Waiting since when the sampled command in flight is out, 0 for none.
	Answers uint64
	Busy    time.Duration
	Waiting time.Duration
}

// Access is a path's ALUA or ANA access state.
type Access uint8

// The access states, best first.
const (
	Optimized Access = iota
	NonOptimized
	Transitioning
	Standby
	Unavailable
	Offline
)

var accessNames = [...]string{"optimized", "non-optimized", "transitioning", "standby", "unavailable", "offline"}

// String names the state as tables print it.
func (a Access) String() string {
	if int(a) < len(accessNames) {
		return accessNames[a]
	}
	return "unknown"
}

// usable reports whether commands may be sent in this state.
func (a Access) usable() bool { return a <= NonOptimized }

// Identity is what must be equal on all paths of a volume (I1).
type Identity struct {
	Target    string // iSCSI target name or subsystem NQN
	Device    string // strongest designator: NAA, EUI-64, SCSI name, NGUID or UUID
	Serial    string // unit serial number
	Others    string // every strong designator, so that none may differ
	BlockSize uint32
	// Weak: only a T10 vendor designator; refused unless a wwid was given.
	Weak bool
}

// Facts is what one incarnation of a path knows about itself and its device.
type Facts struct {
	Identity Identity
	Limits   blk.Limits
	Access   Access
	// Vectors: commands may have their payload in pieces (blk.Command.Vec).
	Vectors bool
	// Proof: bringing the path up made the target end every earlier incarnation
	// of it (session reinstatement, I3).
	Proof bool
	// Local and Remote are the connection's addresses, for tables.
	Local, Remote string
}
