package subsystem

import (
	"net"
	"net/netip"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
)

// records are the discovery records of the subsystem for a host.
func (m *Machine) records(host string) (out []nvme.Record) {
	if !m.admits(host) {
		return nil
	}
	for _, p := range m.portals {
		if r, ok := p.record(m.cfg.Name); ok {
			out = append(out, r)
		}
	}
	return out
}

// record is how the subsystem is reached at the portal; false: not at all.
// Whether it is by TLS is left unsaid: nvme-cli 2.3 takes "not required" for a
// reason to try.
func (p *portal) record(subsystem string) (r nvme.Record, ok bool) {
	host, port, err := net.SplitHostPort(p.Address)
	if err != nil {
		return r, false
	}
	r = nvme.Record{Transport: nvme.TransportTCP, Family: nvme.FamilyIPv4, Subtype: nvme.SubtypeNVM,
		Requirements: nvme.NoFlowControl, PortID: p.TPGT, ControllerID: nvme.AnyController, AdminQueue: adminDepth,
		Service: port, Subsystem: subsystem, Address: host}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() { // a scope does not matter
		r.Family = nvme.FamilyIPv6
	}
	return r, true
}

// discoveryLog is the discovery log for a controller's host.
func (m *Machine) discoveryLog(x *controller) []byte {
	var all []nvme.Record
	if m.directory != nil {
		all = m.directory(x.host)
	} else {
		all = m.records(x.host)
	}
	all = all[:min(len(all), maxRecords)]
	b := nvme.DiscoveryHeader{Generation: m.generation, Records: uint64(len(all))}.Append(nil)
	for _, r := range all {
		b = r.Append(b)
	}
	return b
}

// discoveryChanged tells discovery controllers that their log is another one.
func (m *Machine) discoveryChanged() {
	m.generation++
	for _, x := range m.controllers {
		m.raise(x, noticeDiscovery)
	}
}
