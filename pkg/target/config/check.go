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
	names, files, ids := seen{}, seen{}, seen{}
	for i, at := range n.key("targets").list(maxTargets) {
		t := &c.Targets[i]
		names.once(at.key("name"), t.Name, t.Name)
		t.checkPortals(at)
		t.checkGroups(at)
		t.checkLUNs(at, files, ids)
	}
}

func (t *Target) checkPortals(n node) {
	addresses := seen{}
	for i, p := range t.Portals {
		at := n.key("portals")
		if at.given() {
			at = at.list(maxPortals)[i].key("address")
		}
		addresses.once(at, p.Address, p.Address)
		if a, err := netip.ParseAddrPort(p.Address); err == nil && !a.Addr().IsLoopback() && t.Auth.SecretFile == "" && !t.Unauthenticated {
			at.fail("%s can be reached from other machines, and the target asks nobody for a secret: give it auth.secretFile, or say unauthenticated: true", p.Address)
		}
	}
	if len(t.Portals) == 0 {
		n.key("portals").fail("is empty: leave it out for 127.0.0.1:%d", DefaultPort)
	}
}

func (t *Target) checkGroups(n node) {
	ids := seen{}
	for i, g := range t.Groups {
		at := n.key("groups").list(maxPortals)[i].key("id")
		ids.once(at, "this group", fmt.Sprint(g.ID))
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
	numbers := seen{}
	for i, l := range t.LUNs {
		at := n.key("luns").list(maxLUNs)[i]
		numbers.once(at.key("number"), fmt.Sprintf("LUN %d", l.Number), fmt.Sprint(l.Number))
		if l.Store.File != "" {
			files.once(at.key("store").key("file"), l.Store.File, l.Store.File)
		}
		if l.Identity != (scsi.Identity{}) {
			ids.once(at.key("wwid"), "this identity", l.Identity.NAA+l.Identity.EUI)
		}
	}
	if len(t.LUNs) == 0 {
		n.key("luns").fail("want at least one LUN")
	}
}
