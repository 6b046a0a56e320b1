package nvmetcp

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
)

// DiscoveredSubsystem is one subsystem that discovery named, with the portals
// of this transport.
type DiscoveredSubsystem struct {
	NQN     string
	Portals []DiscoveredPortal
}

// DiscoveredPortal is one address of a subsystem.
type DiscoveredPortal struct {
	Address string // host:port, IPv6 in brackets
	PortID  uint16 // of the subsystem's port: equal numbers are one port
	TLS     bool   // the port takes no connection without TLS, which is not offered here
}

// Discovery is what a discovery controller, and those it refers to, know.
type Discovery struct {
	Subsystems []DiscoveredSubsystem // by name
	// Skipped says what was left out and why, one sentence each: other
	// transports, unusable addresses, referrals that did not answer.
	Skipped []string
}

// site is one discovery controller to ask.
type site struct {
	address, nqn string
	hops         int // referrals between the first one and this
}

// askFunc reads the log of one discovery controller. remote is where the
// connection ended up: the address of a name, with its scope.
type askFunc func(address, nqn string) (records []nvme.Record, remote netip.AddrPort, err error)

// walk is one tour over discovery controllers, breadth first.
type walk struct {
	ask     askFunc
	queue   []site
	visited map[string]bool // addresses: a referral to itself, or a ring, ends here (B-21)
	asked   int
	found   map[string]*DiscoveredSubsystem
	out     Discovery
}

// walkReferrals asks the first controller, which must answer, and then those
// that it and they refer to, as far as the limits go.
func walkReferrals(first site, ask askFunc) (*Discovery, error) {
	w := &walk{ask: ask, queue: []site{first}, visited: map[string]bool{}, found: map[string]*DiscoveredSubsystem{}}
	for len(w.queue) > 0 {
		s := w.queue[0]
		w.queue = w.queue[1:]
		err := w.visit(s)
		if err != nil && s.hops == 0 {
			return nil, err
		}
		if err != nil {
			w.skip("referral to %s: %v", s.address, err)
		}
	}
	for _, s := range w.found {
		w.out.Subsystems = append(w.out.Subsystems, *s)
	}
	slices.SortFunc(w.out.Subsystems, func(a, b DiscoveredSubsystem) int { return cmp.Compare(a.NQN, b.NQN) })
	return &w.out, nil
}

func (w *walk) visit(s site) error {
	if w.visited[s.address] {
		return nil
	}
	if w.asked == maxDiscoveryControllers {
		return fmt.Errorf("not asked: %d discovery controllers were", w.asked)
	}
	w.asked++
	w.visited[s.address] = true
	records, remote, err := w.ask(s.address, s.nqn)
	if err != nil {
		return err
	}
	w.visited[remote.String()] = true // a name may be referred to by its address
	for i := range records {
		w.record(&records[i], s, remote.Addr().Zone())
	}
	return nil
}

// record takes one record of s, whose connection has the given IPv6 scope.
func (w *walk) record(r *nvme.Record, s site, scope string) {
	if r.Subtype == nvme.SubtypeDiscovery {
		return // the controller that was asked
	}
	address, err := recordAddress(r, scope)
	if err == nil && r.Subtype != nvme.SubtypeNVM && r.Subtype != nvme.SubtypeReferral {
		err = fmt.Errorf("subsystem type %d is unknown", r.Subtype)
	}
	if err == nil {
		err = nvme.CheckNQN(r.Subsystem)
	}
	if err == nil && r.Subtype == nvme.SubtypeReferral {
		err = w.referral(r, s, address)
	} else if err == nil {
		err = w.subsystem(r, address)
	}
	if err != nil {
		w.skip("%s: record of %.*q at %.*q: %v", s.address, maxShown, r.Subsystem, maxShown, r.Address, err)
	}
}

func (w *walk) referral(r *nvme.Record, s site, address string) error {
	switch {
	case w.visited[address]:
		return nil
	case needsTLS(r):
		return errors.New("this discovery controller takes no connection without TLS, which is not offered here")
	case s.hops == maxReferralHops:
		return fmt.Errorf("not followed: it is %d referrals away", s.hops+1)
	case len(w.queue) == maxDiscoveryControllers:
		return fmt.Errorf("not followed: %d others wait", len(w.queue))
	}
	w.queue = append(w.queue, site{address, r.Subsystem, s.hops + 1})
	return nil
}

func (w *walk) subsystem(r *nvme.Record, address string) error {
	d := w.found[r.Subsystem]
	if d == nil {
		if len(w.found) == maxDiscovered {
			return fmt.Errorf("more than %d subsystems", maxDiscovered)
		}
		d = &DiscoveredSubsystem{NQN: r.Subsystem}
		w.found[r.Subsystem] = d
	}
	p := DiscoveredPortal{address, r.PortID, needsTLS(r)}
	if slices.ContainsFunc(d.Portals, func(o DiscoveredPortal) bool { return o.Address == address }) {
		return nil // another controller says the same
	}
	if len(d.Portals) == maxDiscoveredPortals {
		return fmt.Errorf("more than %d portals", maxDiscoveredPortals)
	}
	d.Portals = append(d.Portals, p)
	return nil
}

func (w *walk) skip(format string, args ...any) {
	if len(w.out.Skipped) < maxSkipped {
		w.out.Skipped = append(w.out.Skipped, fmt.Sprintf(format, args...))
	}
}

func needsTLS(r *nvme.Record) bool { return r.Requirements&3 == nvme.SecureRequired }

// recordAddress is where a record points, host:port. The address must be one
// of its family, not a name and not every address of a machine. An IPv6 scope
// names an interface of the machine that uses it: a link-local address gets the
// scope of the connection that told it, before that of the record (B-21).
func recordAddress(r *nvme.Record, scope string) (string, error) {
	if r.Transport != nvme.TransportTCP {
		return "", fmt.Errorf("transport type %d, not TCP", r.Transport)
	}
	a, err := netip.ParseAddr(r.Address)
	if err != nil {
		return "", errors.New("the address is no IP address")
	}
	if r.Family == nvme.FamilyIPv4 && !a.Is4() || r.Family == nvme.FamilyIPv6 && !a.Is6() || r.Family != nvme.FamilyIPv4 && r.Family != nvme.FamilyIPv6 {
		return "", fmt.Errorf("the address is not one of family %d", r.Family)
	}
	switch a = a.Unmap(); {
	case a.IsUnspecified() || a.IsMulticast():
		return "", errors.New("the address is not one of a machine: the target should advertise one that hosts reach")
	case !a.IsLinkLocalUnicast() || a.Is4():
		a = a.WithZone("")
	case scope != "":
		a = a.WithZone(scope)
	case a.Zone() == "":
		return "", errors.New("a link-local address without a scope: ask a portal that has one, fe80::…%interface")
	}
	port, err := strconv.ParseUint(r.Service, 10, 16)
	if err != nil || port == 0 {
		return "", fmt.Errorf("%.10q is no port", r.Service)
	}
	return net.JoinHostPort(a.String(), strconv.FormatUint(port, 10)), nil
}
