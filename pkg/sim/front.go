package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// The names of the transports in scripts, and of their targets.
const (
	overISCSI = "iscsi"
	overNVMe  = "nvme-tcp"
)

// transport is how a volume is reached: what differs at both ends.
type transport struct {
	port     string
	power    func(set *Setup, d *disk, size uint64) (front, error) // makes the target's machine
	protocol func(set *Setup) (device.Protocol, error)
	// window is how many of the commands of one lane a path has in flight at most.
	window func(set *Setup) int
	// tellsPower: a target tells that it lost power, and with it what was not
	// flushed. Without that nobody can say so in time (I4).
	tellsPower bool
}

var transports = map[string]*transport{
	overISCSI: {"3260", powerISCSI, protocolISCSI, func(set *Setup) int { return min(set.Depth, set.TargetDepth) }, true},
	overNVMe:  {"4420", powerNVMe, protocolNVMe, windowNVMe, false},
}

// Transports are the names that scripts know.
func Transports() []string { return slices.Sorted(maps.Keys(transports)) }

func (s *Setup) window() int { return transports[s.Transport].window(s) }

// optimized is the access state of groups that nothing was done to.
const optimized = "optimized"

// front is the target's machine of one transport: what the array asks of any,
// and what the steps of a script mean in its protocol. Under world.mu.
type front interface {
	serve.Machine
	Dirty() []*serve.Conn
	Hold(match serve.Match, late bool, notify func()) (*serve.Held, error)
	Delay(match serve.Match, d time.Duration) error
	DropAnswer(match serve.Match) error
	ClearFaults()

	// jobs says how the disk's jobs run; see serve.Core.Run.
	jobs(run func(job func() error, done func(error)))
	tally() tally
	// dialect reads along what a link carries.
	dialect(l *link) dialect
	// access sets the state of a group, by one of states.
	access(group uint16, state string)
	// busy answers n commands with that there is no room for them now.
	busy(n int, full bool)
	// grow makes the volume size bytes and tells all; a portal that shows another
	// volume goes on with that.
	grow(size uint64, foreign func(portal int) bool)
	// swap gives the volume's number to another one at a portal, and tells. back
	// undoes it.
	swap(portal int, size uint64) (back func(size uint64) error, err error)
	// tellPower tells the host at a portal that power was lost, if it is there.
	tellPower(portal int) bool
}

// states are those of groups of paths: the transport's own, or what is like it.
var states = map[string]string{optimized: optimized, "non-optimized": "non-optimized", "standby": "standby",
	"unavailable": "unavailable", "offline": "offline", "transitioning": "transitioning"}

// tally is what a machine did.
type tally struct{ late, reinstated, logins, aborted uint64 }
