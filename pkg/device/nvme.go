package device

import (
	"errors"
	"fmt"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/portal"
)

// NVMe is a Protocol: one namespace of a subsystem, over NVMe/TCP.
type NVMe struct {
	Subsystem string // NQN
	NSID      uint32
	// HostNQN names this host; empty means DefaultHostNQN. HostID is the same on
	// all paths and after a restart; zero means what HostIDOf makes of the name.
	HostNQN string
	HostID  [16]byte
	Auth    auth.Credentials
	// KeepAlive is the keep alive timeout (KATO), minKeepAlive to maxKeepAlive; 0
	// means DefaultKeepAlive. Two or three of it are how long a lost controller's
	// writes may live (I3).
	KeepAlive time.Duration
	// Queues is how many I/O queues a controller is asked for; 0 means 1. Lanes are
	// spread over them.
	Queues int
	// HeaderDigest and DataDigest are demands.
	HeaderDigest, DataDigest bool
}

func (v NVMe) withDefaults() (Protocol, error) {
	if v.Subsystem == "" {
		return nil, errors.New("no subsystem NQN given")
	}
	if v.HostNQN == "" {
		v.HostNQN = DefaultHostNQN()
	}
	for _, n := range []string{v.Subsystem, v.HostNQN} {
		if err := nvme.CheckNQN(n); err != nil {
			return nil, err
		}
	}
	if v.HostID == [16]byte{} {
		v.HostID = HostIDOf(v.HostNQN)
	}
	if v.NSID == 0 || v.NSID > maxNSID {
		return nil, fmt.Errorf("namespace %d of %s: a namespace ID is 1 to %#x", v.NSID, v.Subsystem, uint32(maxNSID))
	}
	if err := v.Auth.Check(); err != nil {
		return nil, err
	}
	if err := positive(timeout{&v.KeepAlive, DefaultKeepAlive}); err != nil {
		return nil, err
	}
	if v.KeepAlive < minKeepAlive || v.KeepAlive > maxKeepAlive {
		return nil, fmt.Errorf("a keep alive timeout of %v is not within %v and %v", v.KeepAlive, minKeepAlive, maxKeepAlive)
	}
	return v, nil
}

func (v NVMe) volume() string { return fmt.Sprintf("%s,ns%d", v.Subsystem, v.NSID) }

func (v NVMe) port() string { return portal.NVMePort }

func (v NVMe) nexus() string { return fmt.Sprintf("nvme-tcp %s %s %d", v.HostNQN, v.Subsystem, v.NSID) }

func (v NVMe) paths(d *Device) ([]path, error) {
	out := make([]path, 0, len(d.cfg.Portals))
	for i, portal := range d.cfg.Portals {
		p := &nvmePath{way: d.newWay(i), volume: v, controller: nvmetcp.Config{
			Portal: portal, Subsystem: v.Subsystem, HostNQN: v.HostNQN, HostID: v.HostID, Auth: v.Auth,
			Source: d.source(i), Dial: d.cfg.Dial, ConnectTimeout: d.cfg.dialTime(), LoginTimeout: d.cfg.dialTime(),
			PathTimeout: d.cfg.PathTimeout, CommandTimeout: d.cfg.CommandTimeout, KeepAlive: v.KeepAlive,
			QueueDepth: d.cfg.QueueDepth, Queues: v.Queues, HeaderDigest: v.HeaderDigest, DataDigest: v.DataDigest,
		}}
		p.inherit()
		out = append(out, p)
	}
	return out, nil
}
