package nvmetcp

import (
	"context"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// Namespace is one namespace seen through one controller: a queue of
// blk.Commands whose outcomes go to its sink. Commands may carry vectors.
type Namespace struct{}

// Namespace opens a namespace: at most depth of its commands are in each I/O
// queue. Close it when done. If the controller is over already, sink.Lost is
// called before Namespace returns. Until SetProfile was called Submit refuses
// everything.
func (c *Controller) Namespace(nsid uint32, depth int, sink blk.Sink) *Namespace {
	return &Namespace{}
}

// SetProfile says how the namespace is addressed and what it can do.
func (n *Namespace) SetProfile(p *Profile) {}

// Submit takes a command; lane picks the I/O queue. False means no tag, no share
// of the queue, or no controller now: nothing was queued. It never blocks; Kick
// sends.
func (n *Namespace) Submit(c *blk.Command, lane int) bool { return false }

// Kick sends what was submitted, on the caller's goroutine if nobody else is
// sending. It never blocks.
func (n *Namespace) Kick(lane int) {}

// Gate is what Resume wants: ask before the identification begins. 0: open.
func (n *Namespace) Gate() uint32 { return 0 }

// Resume lets the namespace send again after an identification proved that it
// is still the same (I1), unless new evidence came since Gate returned upTo.
func (n *Namespace) Resume(upTo uint32) {}

// Latency is a moving average of sampled command times; 0 before the first.
func (n *Namespace) Latency() time.Duration { return 0 }

// Samples tells how many commands were sampled, the time they took together,
// and since when the oldest one in flight is out, 0 for none.
func (n *Namespace) Samples() (count uint64, took, waiting time.Duration) { return 0, 0, 0 }

// Inflight counts the commands submitted and not handed back.
func (n *Namespace) Inflight() int { return 0 }

// ReadFirst reads the first block and throws it away: a probe that waits at the
// gate like all I/O. An answer of any kind is no error.
func (n *Namespace) ReadFirst(ctx context.Context) error { return ErrClosed }

// Close gives the namespace up: it waits until its commands are handed back, and
// no call to its sink comes after it returns. Not to be called by a sink.
func (n *Namespace) Close() {}
