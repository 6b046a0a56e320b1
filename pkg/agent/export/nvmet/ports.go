package nvmet

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export/configfs"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// attach links a subsystem to all our ports, which opens those that had none, and
// to no other.
func (x *Exporter) attach(e *configfs.Edit, nqn string) {
	x.shared.Lock()
	defer x.shared.Unlock()
	for _, p := range x.ports {
		x.port(e, p)
		e.Link(subsystemPath(nqn), portPath(p.id).Add("subsystems", nqn))
	}
	for _, id := range x.portsOf(e, nqn) {
		if !slices.ContainsFunc(x.ports, func(p port) bool { return p.id == id }) {
			e.Unlink(portPath(id).Add("subsystems", nqn))
		}
	}
}

// port makes one of our ports. One that is there and says something else is
// somebody's, unless nothing is linked to it: addresses are fixed while something
// is.
func (x *Exporter) port(e *configfs.Edit, p port) {
	dir := portPath(p.id)
	family := "ipv4"
	if p.listen.Addr().Is6() {
		family = "ipv6"
	}
	want := []string{"addr_trtype", "tcp", "addr_adrfam", family, "addr_traddr", p.listen.Addr().String(), "addr_trsvcid", strconv.Itoa(int(p.listen.Port()))}
	if !e.Dir(dir) && !has(e, dir, want) && len(e.List(dir.Add("subsystems"))) > 0 {
		e.Fail(fmt.Errorf("%w: port %s of the kernel's NVMe target is in use for another address than %s: give the portal another group", backend.ErrConflict, p.id, p.listen))
	}
	e.Attrs(dir, want...)
}

// has reports whether attributes have these values.
func has(e *configfs.Edit, dir configfs.Path, kv []string) bool {
	for i := 0; i+1 < len(kv); i += 2 {
		if e.Get(dir.Add(kv[i])) != kv[i+1] {
			return false
		}
	}
	return true
}

// detach unlinks a subsystem from all ports: the kernel ends its controllers, and
// closes a port with its last subsystem. Ports of ours go with it.
func (x *Exporter) detach(e *configfs.Edit, nqn string) {
	x.shared.Lock()
	defer x.shared.Unlock()
	for _, id := range x.portsOf(e, nqn) {
		e.Unlink(portPath(id).Add("subsystems", nqn))
	}
	for _, p := range x.ports {
		if len(e.List(portPath(p.id).Add("subsystems"))) == 0 {
			e.Remove(portPath(p.id))
		}
	}
}

// portsOf are the ports that a subsystem is linked to.
func (x *Exporter) portsOf(e *configfs.Edit, nqn string) (ids []string) {
	for _, id := range e.List(configfs.Path("").Add("ports")) {
		if slices.Contains(e.List(portPath(id).Add("subsystems")), nqn) {
			ids = append(ids, id)
		}
	}
	return ids
}
