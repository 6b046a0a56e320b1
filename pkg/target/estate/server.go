package estate

import (
	"errors"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	nvmeauth "github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/config"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
	"github.com/csi-mpath/csi-mpath/pkg/target/subsystem"
)

// server is a target of either protocol, as a configuration has it.
type server interface {
	serve.Served
	Close() error
	// access changes who is let in, and what they must know.
	access(names []string, s *secrets) error
	// limits changes what sessions, or controllers, to come are given.
	limits(t *config.Target) error
	// state changes the access state of a group.
	state(g config.Group)
	add(l *lun) error
	RemoveLUN(n uint32) error
	Grow(n uint32, size uint64) error
	SetMode(n uint32, readOnly, writeThrough, thick bool) error
}

// secrets are what a target asks for.
type secrets struct {
	chap   auth.Credentials
	dhchap nvmeauth.Credentials
	hosts  map[string]nvmeauth.Credentials
}

// hubs are what the targets of each protocol share.
type hubs struct {
	iscsi *target.Hub
	nvme  *subsystem.Hub
}

func newHubs() (h hubs, err error) {
	if h.iscsi, err = target.NewHub(auth.Credentials{}); err != nil {
		return h, err
	}
	h.nvme, err = subsystem.NewHub(nvmeauth.Credentials{})
	return h, err
}

// of is the hub of a target.
func (h *hubs) of(t *config.Target) *serve.Hub {
	if t.NVMe {
		return h.nvme.Hub
	}
	return h.iscsi.Hub
}

func (h *hubs) setAuth(s *secrets) error {
	return errors.Join(h.iscsi.SetDiscoveryAuth(s.chap), h.nvme.SetDiscoveryAuth(s.dhchap))
}

func (h *hubs) close() error { return errors.Join(h.iscsi.Close(), h.nvme.Close()) }

// newServer makes a target that nobody reaches yet.
func newServer(t *config.Target, s *secrets, luns map[uint32]*lun) (server, error) {
	if t.NVMe {
		c := subsystem.Config{Name: t.Name, Auth: s.dhchap, HostAuth: s.hosts, Hosts: t.Initiators, Depth: t.Depth, Queues: t.Queues}
		for _, l := range t.LUNs {
			c.Namespaces = append(c.Namespaces, luns[l.Number].namespace())
		}
		srv, err := subsystem.New(c)
		return nvmeServer{srv}, err
	}
	c := target.Config{Name: t.Name, Auth: s.chap, Initiators: t.Initiators, Depth: t.Depth}
	for _, l := range t.LUNs {
		c.LUNs = append(c.LUNs, luns[l.Number].unit())
	}
	srv, err := target.New(c)
	return iscsiServer{srv}, err
}

type iscsiServer struct{ *target.Server }

func (s iscsiServer) access(names []string, x *secrets) error { return s.SetAccess(names, x.chap) }
func (s iscsiServer) state(g config.Group)                    { s.SetALUA(g.ID, g.State) }
func (s iscsiServer) add(l *lun) error                        { return s.AddLUN(l.unit()) }

func (s iscsiServer) limits(t *config.Target) error {
	return s.SetDepth(orDefault(t.Depth, target.DefaultDepth))
}

type nvmeServer struct{ *subsystem.Server }

func (s nvmeServer) access(names []string, x *secrets) error {
	return s.SetAccess(names, x.dhchap, x.hosts)
}
func (s nvmeServer) state(g config.Group)     { s.SetANA(g.ID, g.ANAGroup, g.ANA) }
func (s nvmeServer) add(l *lun) error         { return s.AddNamespace(l.namespace()) }
func (s nvmeServer) RemoveLUN(n uint32) error { return s.RemoveNamespace(n) }

func (s nvmeServer) limits(t *config.Target) error {
	return errors.Join(s.SetDepth(orDefault(t.Depth, subsystem.DefaultDepth)), s.SetQueues(orDefault(t.Queues, subsystem.DefaultQueues)))
}

func orDefault(v, def int) int {
	if v == 0 {
		return def
	}
	return v
}

// unit is the LUN as a target takes it.
func (l *lun) unit() target.LUN {
	u := target.LUN{Number: l.cfg.Number, Store: l.store, ReadOnly: l.cfg.ReadOnly, WriteThrough: l.cfg.WriteThrough,
		Thick: l.cfg.Thick, Device: target.Device{BlockSize: l.cfg.BlockSize, Size: l.size}}
	if u.Identity = l.cfg.Identity; u.Identity != (scsi.Identity{}) && u.Serial == "" {
		u.Serial = u.NAA + u.EUI // a page without a serial would be empty
	}
	return u
}

// namespace is the LUN as a subsystem takes it.
func (l *lun) namespace() subsystem.Namespace {
	return subsystem.Namespace{ID: l.cfg.Number, Store: l.store, ReadOnly: l.cfg.ReadOnly, WriteThrough: l.cfg.WriteThrough,
		Thick: l.cfg.Thick, ANAGroup: l.cfg.ANAGroup,
		Device: subsystem.Device{Identity: l.cfg.NVMe, BlockSize: l.cfg.BlockSize, Size: l.size}}
}
