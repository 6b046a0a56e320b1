package config

import (
	"fmt"
	"net/netip"

	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/strictyaml"
)

// check holds what concerns several values.
func (c *Config) check(n strictyaml.Node) {
	names, files, ids, doors := strictyaml.Seen{}, strictyaml.Seen{}, strictyaml.Seen{}, map[string]bool{}
	for i, at := range n.Key("targets").List(maxTargets) {
		t := &c.Targets[i]
		names.Once(at.Key(t.keys().name), t.Name, t.Name)
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
func (t *Target) checkPortals(n strictyaml.Node, doors map[string]bool) {
	addresses := strictyaml.Seen{}
	for i, p := range t.Portals {
		at := n.Key("portals")
		if at.Given() {
			at = at.List(maxPortals)[i].Key("address")
		}
		addresses.Once(at, p.Address, p.Address)
		if nvme, ok := doors[p.Address]; ok && nvme != t.NVMe {
			at.Fail("%s serves iSCSI or NVMe/TCP, not both", p.Address)
		}
		doors[p.Address] = t.NVMe
		if a, err := netip.ParseAddrPort(p.Address); err == nil && !a.Addr().IsLoopback() && t.open() && !t.Unauthenticated {
			at.Fail("%s can be reached from other machines, and the target asks nobody for a secret: give it auth.secretFile, or say unauthenticated: true", p.Address)
		}
	}
	if len(t.Portals) == 0 {
		port := DefaultPort
		if t.NVMe {
			port = DefaultNVMePort
		}
		n.Key("portals").Fail("is empty: leave it out for 127.0.0.1:%d", port)
	}
}

func (t *Target) checkGroups(n strictyaml.Node) {
	ids := strictyaml.Seen{}
	for i, g := range t.Groups {
		at := n.Key("groups").List(maxPortals)[i].Key("id")
		ids.Once(at, "this group", fmt.Sprint(g.ID, g.ANAGroup))
		used := false
		for _, p := range t.Portals {
			used = used || p.Group == g.ID
		}
		if !used {
			at.Fail("no portal is in group %d", g.ID)
		}
	}
}

func (t *Target) checkLUNs(n strictyaml.Node, files, ids strictyaml.Seen) {
	numbers, k := strictyaml.Seen{}, t.keys()
	for i, l := range t.LUNs {
		at := n.Key(k.units).List(maxLUNs)[i]
		numbers.Once(at.Key(k.number), fmt.Sprintf("%s %d", k.unit, l.Number), fmt.Sprint(l.Number))
		if l.Store.File != "" {
			files.Once(at.Key("store").Key("file"), l.Store.File, l.Store.File)
		}
		if l.Identity != (scsi.Identity{}) {
			ids.Once(at.Key("wwid"), "this identity", l.Identity.NAA+l.Identity.EUI)
		}
		for key, id := range map[string]string{"uuid": l.NVMe.UUID, "nguid": l.NVMe.NGUID, "eui64": l.NVMe.EUI64} {
			if id != "" {
				ids.Once(at.Key(key), "this identity", id)
			}
		}
	}
	if len(t.LUNs) == 0 {
		n.Key(k.units).Fail("want at least one %s", k.unit)
	}
}
