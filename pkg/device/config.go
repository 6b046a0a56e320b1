package device

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/pathsel"
	"github.com/csi-mpath/csi-mpath/pkg/poll"
	"github.com/csi-mpath/csi-mpath/pkg/portal"
)

// Config describes one volume: where it is, and how it behaves.
type Config struct {
	// Name is what events, errors and the state directory call it. Empty means
	// a name made of target and LUN, or of subsystem and namespace.
	Name string
	// Protocol is ISCSI or NVMe: which volume, and how it is reached.
	Protocol Protocol
	// Portals are host:port, IPv6 in brackets; the port is the protocol's when
	// left out.
	Portals  []string
	WWID     string // expected identity, optional (I1)
	ReadOnly bool
	// Reserve: no other node writes while this device is open. It registers, takes
	// a registrants-only reservation, and removes everybody else's registration
	// before its first write passes (I9); Close gives it back. A Patient Open goes on
	// with what the process before held. Not with ReadOnly.
	Reserve bool
	// Sources bind the paths, one each in order of Portals, to a local address or
	// interface; empty entries and a shorter list leave the choice to the kernel.
	Sources []string

	PathSelector   string
	MinPaths       int
	QueueDepth     int
	PathTimeout    time.Duration
	CommandTimeout time.Duration
	NoPathTimeout  time.Duration // datapath.Never holds I/O for ever
	MergeDeadline  time.Duration // 0, a time, datapath.MergeAuto or MergeOff
	Polling        poll.Polling  // 0, a time, or poll.PollAdaptive
	Failback       time.Duration // datapath.FailbackImmediate, FailbackManual, or a time

	// Attach is how Device.Attach makes the volume a block device; empty is AttachNBD.
	Attach Attachment

	// Replays: the client is the kernel, which sends unanswered requests again
	// after a restart. Only nbd devices do.
	Replays bool

	// Patient: Open waits for a path as long as its context lives, even while no
	// path has any hope: the volume was served before, and will be again.
	Patient bool

	// Dial, if set, makes every connection instead of TCP, and NoControl leaves
	// the status socket out: for simulators, in whose time no real socket may be
	// waited for.
	Dial      func(ctx context.Context, portal string) (net.Conn, error)
	NoControl bool
	// Jitter, if set, draws a path's pauses: for simulators that repeat themselves.
	Jitter func(path string, below time.Duration) time.Duration

	// Logins bounds the rate of logins together with the other devices that have
	// the same; nil is what all devices of the process share, or, with Dial, one
	// of the device's own.
	Logins *Logins

	// StateDir holds what must outlive the process: ISIDs, locks, in-flight
	// tables, status sockets. A file system in memory.
	StateDir string
	// Events is told of transitions; it must not block.
	Events func(datapath.Event)
	// Resized is told the new size after growth; it must not block.
	Resized func(size uint64)
}

// Check reports what is wrong with a configuration, before anything is dialled.
func (c Config) Check() error {
	_, err := c.withDefaults()
	return err
}

// Volume is what the volume is called.
func (c Config) Volume() string {
	if c.Name == "" && c.Protocol != nil {
		return c.Protocol.volume()
	}
	return c.Name
}

// withDefaults checks a configuration and fills what is empty.
func (c Config) withDefaults() (_ Config, err error) {
	if c.Protocol == nil {
		return c, errors.New("no protocol given: a volume is reached over iSCSI or over NVMe/TCP")
	}
	if c.Protocol, err = c.Protocol.withDefaults(); err != nil {
		return c, err
	}
	c.Name = c.Volume()
	if err := c.fill(); err != nil {
		return c, fmt.Errorf("volume %s: %w", c.Name, err)
	}
	switch {
	case c.Logins != nil:
	case c.Dial != nil:
		c.Logins = NewLogins()
	default:
		c.Logins = processWide
	}
	return c, nil
}

// fill is withDefaults for what is the same over every protocol.
func (c *Config) fill() (err error) {
	if len(c.Portals) == 0 || len(c.Portals) > datapath.MaxPaths {
		return fmt.Errorf("%d portals given, 1 to %d are possible", len(c.Portals), datapath.MaxPaths)
	}
	if c.Portals, err = normalize(c.Portals, c.Protocol.port()); err != nil {
		return err
	}
	switch {
	case c.Attach == "":
		c.Attach = AttachNBD
	case c.Attach != AttachNBD && c.Attach != AttachFUSE:
		return fmt.Errorf("attachment %q is neither %q nor %q", c.Attach, AttachNBD, AttachFUSE)
	}
	if c.Reserve && c.ReadOnly {
		return errors.New("a reservation for reading only keeps nobody from anything")
	}
	if len(c.Sources) > len(c.Portals) {
		return fmt.Errorf("%d source addresses for %d portals", len(c.Sources), len(c.Portals))
	}
	if _, err := pathsel.ByName(c.PathSelector); err != nil {
		return err
	}
	if c.QueueDepth == 0 {
		c.QueueDepth = DefaultQueueDepth
	}
	return positive(timeout{&c.PathTimeout, DefaultPathTimeout}, timeout{&c.CommandTimeout, DefaultCommandTimeout})
}

// timeout is one of a configuration, and what it is when it is 0.
type timeout struct {
	v   *time.Duration
	def time.Duration
}

// positive fills the timeouts that are 0, and refuses negative ones.
func positive(all ...timeout) error {
	for _, t := range all {
		if *t.v == 0 {
			*t.v = t.def
		}
		if *t.v < 0 {
			return errors.New("a timeout is negative")
		}
	}
	return nil
}

// normalize gives every portal its port and refuses doubles: two paths to one
// portal are no redundancy.
func normalize(portals []string, port string) ([]string, error) {
	out := make([]string, 0, len(portals))
	seen := map[string]bool{}
	for _, p := range portals {
		n, err := portal.Normalize(p, port)
		if err != nil {
			return nil, err
		}
		if seen[n] {
			return nil, fmt.Errorf("portal %s is given twice", n)
		}
		seen[n] = true
		out = append(out, n)
	}
	return out, nil
}
