package embedded

import (
	"encoding/hex"
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/subsystem"
)

type nvmeHub struct{ *subsystem.Hub }

func newNVMe() (protocol, error) {
	h, err := subsystem.NewHub(auth.Credentials{})
	return nvmeHub{h}, err
}

func (h nvmeHub) changed() { h.Changed() }

func (nvmeHub) build(e *export.Export, st target.Store) (server, error) {
	s, err := subsystem.New(subsystem.Config{Name: export.Target(backend.NVMe, e.Identity), Grants: map[string]subsystem.Grant{},
		Serial: export.Serial(e.Identity), Model: export.Product, NoCache: !e.Cache,
		Namespaces: []subsystem.Namespace{{ID: export.NSID, Store: st, WriteThrough: !e.Cache, Thick: !e.Discard, Device: subsystem.Device{
			Identity:  nvme.Identity{UUID: export.UUID(e.Identity), NGUID: e.Identity},
			BlockSize: blockSize, Size: uint64(e.Size)}}}})
	return nvmeServer{s}, err
}

func (nvmeHub) check(access []export.Access) error {
	for _, a := range access {
		if err := nvme.CheckNQN(a.Initiator); err != nil {
			return fmt.Errorf("%w: %w", backend.ErrInvalid, err)
		}
		if _, err := hostID(a.HostID); err != nil {
			return err
		}
		if c := dhchap(&a); c.Check() != nil {
			return fmt.Errorf("%w: host %s: %w", backend.ErrInvalid, a.Initiator, c.Check())
		}
	}
	return nil
}

// hostID reads a host identifier: 32 hexadecimal digits, or none, which is any.
func hostID(s string) (id [16]byte, err error) {
	if n, err := hex.Decode(id[:], []byte(s[:min(len(s), 32)])); s != "" && (err != nil || n != len(id) || len(s) != 32) {
		return id, fmt.Errorf("%w: host identifier %.40q: want 32 hexadecimal digits", backend.ErrInvalid, s)
	}
	return id, nil
}

func dhchap(a *export.Access) auth.Credentials {
	return auth.Credentials{Secret: a.Auth.DHCHAP.Host, ControllerSecret: a.Auth.DHCHAP.Controller}
}

type nvmeServer struct{ *subsystem.Server }

func (s nvmeServer) grant(access []export.Access) (bool, <-chan struct{}, error) {
	grants := map[string]subsystem.Grant{}
	for _, a := range access {
		id, err := hostID(a.HostID)
		if err != nil {
			return false, nil, err // check was not asked
		}
		grants[a.Initiator] = subsystem.Grant{HostID: id, Auth: dhchap(&a), ReadOnly: a.ReadOnly}
	}
	return s.SetGrants(grants)
}

func (s nvmeServer) grow(size uint64) error { return s.Grow(export.NSID, size) }
