package embedded

import (
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target"
)

// physicalExp says that physical blocks are 4096 bytes: file systems then write
// no less at a time, which files and thin pools like.
const physicalExp = 3

type iscsiHub struct{ *target.Hub }

func newISCSI() (protocol, error) {
	h, err := target.NewHub(auth.Credentials{})
	return iscsiHub{h}, err
}

func (iscsiHub) changed() {}

func (iscsiHub) build(e *export.Export, st target.Store) (server, error) {
	s, err := target.New(target.Config{Name: export.Target(backend.ISCSI, e.Identity), Grants: map[string]target.Grant{},
		LUNs: []target.LUN{{Number: export.LUN, Store: st, WriteThrough: !e.Cache, Thick: !e.Discard, Device: target.Device{
			Identity: scsi.Identity{NAA: export.NAA(e.Identity), Serial: e.Identity}, Vendor: export.Vendor, Product: export.Product,
			Revision: "1", BlockSize: blockSize, PhysicalExp: physicalExp, Size: uint64(e.Size)}}}})
	return iscsiServer{s}, err
}

func (iscsiHub) check(access []export.Access) error {
	for _, a := range access {
		if a.Initiator == "" || len(a.Initiator) > maxISCSIName {
			return fmt.Errorf("%w: initiator name %.60q: want 1..%d bytes", backend.ErrInvalid, a.Initiator, maxISCSIName)
		}
		if c := chap(&a); c.Check() != nil {
			return fmt.Errorf("%w: initiator %s: %w", backend.ErrInvalid, a.Initiator, c.Check())
		}
	}
	return nil
}

func chap(a *export.Access) auth.Credentials {
	c := a.Auth.CHAP
	return auth.Credentials{User: c.User, Secret: c.Secret, MutualUser: c.MutualUser, MutualSecret: c.MutualSecret}
}

type iscsiServer struct{ *target.Server }

func (s iscsiServer) grant(access []export.Access) (bool, <-chan struct{}, error) {
	grants := map[string]target.Grant{}
	for _, a := range access {
		grants[a.Initiator] = target.Grant{Auth: chap(&a), ReadOnly: a.ReadOnly}
	}
	return s.SetGrants(grants)
}

func (s iscsiServer) grow(size uint64) error { return s.Grow(export.LUN, size) }
