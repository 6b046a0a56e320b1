// Package lio serves volumes with the kernel's iSCSI target.
//
// Each volume has a backstore (iblock, over its block device, or a loop device
// over its file) and a target of its own with one portal group, in which all
// portals are; each initiator has an access list of its own, and nobody else gets
// in. What is under other names is an administrator's, and never touched.
//
// Revocation (I9) is removing an initiator's access list: the kernel ends the
// initiator's sessions first, waits for the commands they had in flight, and
// rmdir returns after that. Other initiators are not disturbed. Read-only access
// is enforced by the kernel. A volatile cache is reported as the block device
// reports it (I4).
//
// LIO tells initiators nothing when a device grows: nodes read the capacity again
// by themselves.
//
// ensure.go makes what should be, remove.go undoes it, list.go tells what is.
package lio

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/configfs"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/loop"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Root is where the kernel's tree is.
const Root = "/sys/kernel/config/target"

// Config describes an exporter. FS and Loops are the kernel's if they are nil.
type Config struct {
	Portals []export.Portal // 1..16, all in one group
	FS      configfs.FS
	Loops   loop.Devices
}

// Exporter implements export.Exporter.
type Exporter struct {
	fs      configfs.FS
	loops   loop.Devices
	listen  []netip.AddrPort
	portals []backend.Portal

	// shared is held while the directory of all backstores comes or goes.
	shared sync.Mutex
}

// New opens the kernel's target. Nothing is changed before the first Ensure.
func New(c Config) (*Exporter, error) {
	listen, told, err := export.CheckPortals(c.Portals, func(int) uint16 { return group })
	if err != nil {
		return nil, err
	}
	for _, p := range told {
		if p.Group != group {
			return nil, fmt.Errorf("%w: portal %s is in group %d: LIO's are all in group %d", backend.ErrInvalid, p.Address, p.Group, group)
		}
	}
	x := &Exporter{fs: c.FS, loops: c.Loops, listen: listen, portals: told}
	if x.loops == nil {
		x.loops = &loop.Kernel{}
	}
	if x.fs == nil {
		if x.fs, err = configfs.Open(Root); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// Kind is "lio".
func (x *Exporter) Kind() string { return "lio" }

// Transport is iSCSI.
func (x *Exporter) Transport() backend.Transport { return backend.ISCSI }

// Portals are those of the configuration.
func (x *Exporter) Portals() []backend.Portal { return x.portals }

// Target is one for all initiators.
func (x *Exporter) Target(identity, _ string) string { return export.Target(backend.ISCSI, identity) }

// Quiesce is not something that LIO can.
func (x *Exporter) Quiesce(context.Context, string) (func(), error) {
	return export.CannotQuiesce(x.Kind())
}

// Close leaves to the kernel what it serves.
func (x *Exporter) Close() error { return nil }

// The places of a volume.

func corePath() configfs.Path { return configfs.Path("").Add("core", adapter) }

func storePath(identity string) configfs.Path { return corePath().Add("v-" + identity) }

func targetPath(identity string) configfs.Path {
	return configfs.Path("").Add("iscsi", export.Target(backend.ISCSI, identity))
}

func groupPath(identity string) configfs.Path {
	return targetPath(identity).Add(fmt.Sprint("tpgt_", group))
}

// lunName is the volume's in its target.
var lunName = fmt.Sprint("lun_", export.LUN)

func lunPath(identity string) configfs.Path { return groupPath(identity).Add("lun", lunName) }

// aclPath is an initiator's. The kernel compares names in lower case (RFC 3722).
func aclPath(identity, initiator string) configfs.Path {
	return groupPath(identity).Add("acls", strings.ToLower(initiator))
}
