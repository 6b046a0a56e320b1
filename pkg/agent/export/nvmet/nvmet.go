// Package nvmet serves volumes with the kernel's NVMe/TCP target.
//
// Each initiator of a volume has a subsystem of its own, with the volume as
// namespace 1 under the same identities in all of them. One subsystem for all
// would not do: the kernel lets a host go on that is taken from the list of
// allowed ones, and has no command that ends the controllers of one host. What it
// has ends those of all hosts, and only disabling the namespace waits for requests
// in flight, which the hosts that stay would see as errors.
//
// So revocation (I9) is removing the initiator's subsystem: the host is taken from
// the list, the subsystem from its ports, which ends its controllers, and the
// namespace is disabled, which returns when the last request has ended. Nobody
// else notices.
//
// Ports are the kernel's, one for each portal, for all volumes; ours have numbers
// of their own. Reservations do not work between subsystems, and the kernel's
// target has none before Linux 6.13 anyway. It has no read-only namespaces for one
// host either: nodes enforce it. Who is connected it does not tell. It always says
// that there is a volatile cache, and passes flushes on (I4).
//
// ensure.go makes what should be, remove.go undoes it, ports.go keeps the ports.
package nvmet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/configfs"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/loop"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Root is where the kernel's tree is.
const Root = "/sys/kernel/config/nvmet"

// Config describes an exporter. FS and Loops are the kernel's if they are nil.
type Config struct {
	// Portals, 1..16. Their groups are the numbers of their ports in configfs; 0
	// lets us choose, from 41500.
	Portals []export.Portal
	FS      configfs.FS
	Loops   loop.Devices
}

// Exporter implements export.Exporter.
type Exporter struct {
	fs      configfs.FS
	loops   loop.Devices
	ports   []port
	portals []backend.Portal

	// shared is held while ports and hosts, which several volumes may use, come, go,
	// or are linked to.
	shared sync.Mutex
}

// port is a port of the kernel's target.
type port struct {
	id     string
	listen netip.AddrPort
}

// New opens the kernel's target. Nothing is changed before the first Ensure.
func New(c Config) (*Exporter, error) {
	listen, told, err := export.CheckPortals(c.Portals, func(i int) uint16 { return uint16(firstPort + i) })
	if err != nil {
		return nil, err
	}
	x := &Exporter{fs: c.FS, loops: c.Loops, portals: told}
	taken := map[uint16]string{}
	for i, p := range told {
		if other := taken[p.Group]; other != "" {
			return nil, fmt.Errorf("%w: portals %s and %s are both port %d", backend.ErrInvalid, other, p.Address, p.Group)
		}
		taken[p.Group] = p.Address
		x.ports = append(x.ports, port{strconv.Itoa(int(p.Group)), listen[i]})
	}
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

// Kind is "nvmet".
func (x *Exporter) Kind() string { return "nvmet" }

// Transport is NVMe/TCP.
func (x *Exporter) Transport() backend.Transport { return backend.NVMe }

// Portals are those of the configuration.
func (x *Exporter) Portals() []backend.Portal { return x.portals }

// Target is another one for each initiator.
func (x *Exporter) Target(identity, initiator string) string {
	sum := sha256.Sum256([]byte(initiator))
	return export.Target(backend.NVMe, identity) + ":" + hex.EncodeToString(sum[:])[:suffix]
}

// parse finds the volume in a subsystem's name; ok false: it is not one of ours.
func parse(nqn string) (identity string, ok bool) {
	i := strings.LastIndexByte(nqn, ':')
	if i < 0 || len(nqn)-i-1 != suffix {
		return "", false
	}
	if _, err := hex.DecodeString(nqn[i+1:]); err != nil {
		return "", false
	}
	identity, ok = export.Identity(nqn[:i])
	return identity, ok && nqn[:i] == export.Target(backend.NVMe, identity)
}

// Quiesce is not something that nvmet can.
func (x *Exporter) Quiesce(context.Context, string) (func(), error) {
	return export.CannotQuiesce(x.Kind())
}

// Close leaves to the kernel what it serves.
func (x *Exporter) Close() error { return nil }

// The places of a subsystem.

func subsystemPath(nqn string) configfs.Path { return configfs.Path("").Add("subsystems", nqn) }

func namespacePath(nqn string) configfs.Path {
	return subsystemPath(nqn).Add("namespaces", strconv.Itoa(export.NSID))
}

func allowedPath(nqn string) configfs.Path { return subsystemPath(nqn).Add("allowed_hosts") }

func hostPath(initiator string) configfs.Path { return configfs.Path("").Add("hosts", initiator) }

func portPath(id string) configfs.Path { return configfs.Path("").Add("ports", id) }
