package config

import (
	"fmt"
	"net/netip"

	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// seen refuses what is given twice.
type seen map[string]string

func (s seen) once(n node, what, v string) {
	if at, ok := s[v]; ok {
		n.fail("%s is also that of %s", what, at)
	}
	s[v] = n.path
}

// check holds what concerns several values.
func (c *Config) check(n node) {
	names, files, ids, doors := seen{}, seen{}, seen{}, map[string]bool{}
	for i, at := range n.key("targets").list(maxTargets) {
		t := &c.Targets[i]
		names.once(at.key(t.keys().name), t.Name, t.Name)
		t.checkPortals(at, doors)
		t.checkGroups(at)
		t.checkLUNs(at, files, ids)
	}
}

// keys are the keys that the two kinds of target have different names for.
type keys struct{ name, units, number, unit string }

func (t *Target) keys() keys {
	if t.NVMe {
		return keys{"nqn", "namespaces", "nsid", "namespace"}
	}
	return keys{"name", "luns", "number", "LUN"}
}

// open reports whether somebody may come without a secret.
func (t *Target) open() bool {
	if t.Auth.SecretFile != "" {
		return false
	}
	return len(t.HostAuth) == 0 || len(t.HostAuth) < len(t.Initiators)
}

// checkPortals also refuses an address that another kind of target has: doors
// are those known, and whether they are of NVMe/TCP.
func (t *Target) checkPortals(n node, doors map[string]bool) {
	addresses := seen{}
	for i, p := range t.Portals {
		at := n.key("portals")
		if at.given() {
			at = at.list(maxPortals)[i].key("address")
		}
		addresses.once(at, p.Address, p.Address)
		if nvme, ok := doors[p.Address]; ok && nvme != t.NVMe {
			at.fail("%s serves iSCSI or NVMe/TCP, not both", p.Address)
		}
		doors[p.Address] = t.NVMe
		if a, err := netip.ParseAddrPort(p.Address); err == nil && !a.Addr().IsLoopback() && t.open() && !t.Unauthenticated {
			at.fail("%s can be reached from other machines, and the target asks nobody for a secret: give it auth.secretFile, or say unauthenticated: true", p.Address)
		}
	}
	if len(t.Portals) == 0 {
		port := DefaultPort
		if t.NVMe {
			port = DefaultNVMePort
		}
		n.key("portals").fail("is empty: leave it out for 127.0.0.1:%d", port)
	}
}

func (t *Target) checkGroups(n node) {
	ids := seen{}
	for i, g := range t.Groups {
		at := n.key("groups").list(maxPortals)[i].key("id")
		ids.once(at, "this group", fmt.Sprint(g.ID, g.ANAGroup))
		used := false
		for _, p := range t.Portals {
			used = used || p.Group == g.ID
		}
		if !used {
			at.fail("no portal is in group %d", g.ID)
		}
	}
}

func (t *Target) checkLUNs(n node, files, ids seen) {
	numbers, k := seen{}, t.keys()
	for i, l := range t.LUNs {
		at := n.key(k.units).list(maxLUNs)[i]
		numbers.once(at.key(k.number), fmt.Sprintf("%s %d", k.unit, l.Number), fmt.Sprint(l.Number))
		if l.Store.File != "" {
			files.once(at.key("store").key("file"), l.Store.File, l.Store.File)
		}
		if l.Identity != (scsi.Identity{}) {
			ids.once(at.key("wwid"), "this identity", l.Identity.NAA+l.Identity.EUI)
		}
		for key, id := range map[string]string{"uuid": l.NVMe.UUID, "nguid": l.NVMe.NGUID, "eui64": l.NVMe.EUI64} {
			if id != "" {
				ids.once(at.key(key), "this identity", id)
			}
		}
	}
	if len(t.LUNs) == 0 {
		n.key(k.units).fail("want at least one %s", k.unit)
	}
}
