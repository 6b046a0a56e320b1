package config

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/strictyaml"
)

// Parse reads and checks a configuration in YAML (or JSON, which is YAML).
func Parse(b []byte) (*Config, error) {
	n, err := strictyaml.Parse(b, MaxFile)
	if err != nil {
		return nil, err
	}
	c := &Config{}
	n.Object("discovery", "targets")
	if d := n.Key("discovery"); d.Given() {
		d.Object("auth", "dhchap")
		c.Discovery, c.DiscoveryDHChap = parseAuth(d.Key("auth")), parseDHChap(d.Key("dhchap"))
	}
	for _, t := range n.Key("targets").List(maxTargets) {
		c.Targets = append(c.Targets, parseTarget(t))
	}
	if len(c.Targets) == 0 {
		n.Key("targets").Fail("want at least one target")
	}
	if n.Err() == nil {
		c.check(n)
	}
	if n.Err() != nil {
		return nil, n.Err()
	}
	return c, nil
}

func parseAuth(n strictyaml.Node) (a Auth) {
	if !n.Given() {
		return a
	}
	n.Object("secretFile")
	a.SecretFile = n.Key("secretFile").AbsPath()
	if a.SecretFile == "" {
		n.Fail("want secretFile, a file with username= and password=")
	}
	return a
}

func parseTarget(n strictyaml.Node) (t Target) {
	if n.Key("nqn").Given() {
		return parseSubsystem(n)
	}
	n.Object("name", "initiators", "auth", "unauthenticated", "portals", "groups", "depth", "luns")
	t.Name = name(n.Key("name"))
	for _, i := range n.Key("initiators").List(maxInitiators) {
		t.Initiators = append(t.Initiators, name(i))
	}
	t.Auth = parseAuth(n.Key("auth"))
	t.Depth = int(n.Key("depth").Number(1, maxDepth, 0))
	t.parseShared(n, "initiators", DefaultPort)
	for _, l := range n.Key("luns").List(maxLUNs) {
		t.LUNs = append(t.LUNs, parseLUN(l))
	}
	return t
}

// parseShared reads what both kinds of target have. access is the key of who is
// let in, which is read.
func (t *Target) parseShared(n strictyaml.Node, access string, port uint16) {
	if i := n.Key(access); i.Given() && len(t.Initiators) == 0 {
		i.Fail("is empty, which would let nobody in: leave it out to let all in")
	}
	t.Unauthenticated = n.Key("unauthenticated").Flag()
	for _, p := range n.Key("portals").List(maxPortals) {
		t.Portals = append(t.Portals, parsePortal(p, t.NVMe, port))
	}
	if !n.Key("portals").Given() {
		t.Portals = []Portal{{Address: fmt.Sprintf("127.0.0.1:%d", port), TPGT: 1, Group: 1}}
	}
	for _, g := range n.Key("groups").List(maxPortals) {
		t.Groups = append(t.Groups, parseGroup(g, t.NVMe))
	}
}

// name is an iSCSI name (RFC 7143 4.2.7), which targets compare byte by byte.
func name(n strictyaml.Node) string {
	s := n.Text(pdu.MaxNameLen)
	if !n.Given() {
		n.Fail("want an iSCSI name, such as iqn.2026-01.com.example:disk1")
	}
	if s == "" {
		return ""
	}
	if !strings.HasPrefix(s, "iqn.") && !strings.HasPrefix(s, "eui.") && !strings.HasPrefix(s, "naa.") ||
		len(s) < 5 || strings.ContainsAny(s, " ,/") || s != strings.ToLower(s) {
		n.Fail("%q is no iSCSI name: it begins with iqn., eui. or naa. and has no blank, comma, slash or capital", strictyaml.Cut(s))
	}
	return s
}

func parsePortal(n strictyaml.Node, nvme bool, port uint16) (p Portal) {
	tag, def := "tpgt", uint64(1)
	if nvme {
		tag, def = "id", 0
	}
	n.Object("address", "advertise", tag, "group")
	at, tell := strictyaml.Door(n.Want("address"), n.Key("advertise"), port)
	p.Address = at.String()
	if tell.IsValid() {
		p.Advertise = tell.String()
	}
	p.TPGT = uint16(n.Key(tag).Number(1, maxGroup, def))
	p.Group = uint16(n.Key("group").Number(1, maxGroup, 1))
	return p
}

// parseGroup reads the access state of a group of portals.
func parseGroup(n strictyaml.Node, overNVMe bool) (g Group) {
	if overNVMe {
		n.Object("id", "anaGroup", "state")
		g.ANAGroup = uint32(n.Key("anaGroup").Number(1, maxANAGroup, 0))
		g.ANA = strictyaml.Choice(n.Key("state"), nvme.Optimized, nvme.NonOptimized, nvme.Inaccessible, nvme.PersistentLoss, nvme.Changing)
	} else {
		n.Object("id", "state")
		g.State = strictyaml.Choice(n.Key("state"), scsi.Optimized, scsi.NonOptimized, scsi.Standby, scsi.Unavailable, scsi.Offline, scsi.Transitioning)
	}
	g.ID = uint16(n.Want("id").Number(1, maxGroup, 0))
	return g
}

func parseLUN(n strictyaml.Node) (l LUN) {
	n.Object("number", "store", "blockSize", "readOnly", "writeThrough", "thick", "wwid", "serial")
	l.Number = uint32(n.Want("number").Number(0, maxLUN, 0))
	l.parseStored(n)
	if w := n.Key("wwid"); w.Given() {
		l.Identity = identity(w)
	}
	if s := n.Key("serial"); s.Given() {
		if l.Identity.Serial = s.Text(maxSerial); strings.ContainsFunc(l.Identity.Serial, func(r rune) bool { return r > '~' }) {
			s.Fail("has other characters than ASCII")
		}
		if l.Identity == (scsi.Identity{Serial: l.Identity.Serial}) {
			s.Fail("a serial needs a wwid beside it: two LUNs may have one serial, but no wwid")
		}
	}
	return l
}

// parseStored reads what LUNs and namespaces have alike.
func (l *LUN) parseStored(n strictyaml.Node) {
	l.BlockSize = uint32(n.Key("blockSize").Number(512, 4096, 512))
	if l.BlockSize != 512 && l.BlockSize != 4096 {
		n.Key("blockSize").Fail("%d is neither 512 nor 4096", l.BlockSize)
		l.BlockSize = 512 // goes on until the end, as all of this does
	}
	l.ReadOnly, l.WriteThrough, l.Thick = n.Key("readOnly").Flag(), n.Key("writeThrough").Flag(), n.Key("thick").Flag()
	l.Store = parseStore(n.Want("store"), l.BlockSize)
}

// identity is naa.… with 16 or 32 digits, or eui.… with 16 (SPC-4 7.8.6).
func identity(n strictyaml.Node) (i scsi.Identity) {
	s := strings.ToLower(n.Text(maxSerial))
	kind, digits, _ := strings.Cut(s, ".")
	_, err := hex.DecodeString(digits)
	switch {
	case err != nil:
	case kind == "naa" && len(digits) == 16 && strings.ContainsRune("235", rune(digits[0])),
		kind == "naa" && len(digits) == 32 && digits[0] == '6':
		i.NAA = digits
	case kind == "eui" && len(digits) == 16:
		i.EUI = digits
	}
	if i == (scsi.Identity{}) {
		n.Fail("%q is neither naa. with 16 hex digits (first 2, 3 or 5) or 32 (first 6), nor eui. with 16", strictyaml.Cut(s))
	}
	return i
}

func parseStore(n strictyaml.Node, block uint32) (s Store) {
	n.Object("ram", "file", "size", "direct")
	s.RAM, s.File = n.Key("ram").Size(maxRAM), n.Key("file").AbsPath()
	s.Size, s.Direct = n.Key("size").Size(maxSize), n.Key("direct").Flag()
	switch {
	case (s.RAM == 0) == (s.File == ""):
		n.Fail("want either ram or file")
	case s.RAM != 0 && (s.Size != 0 || s.Direct):
		n.Fail("size and direct are for files; the size of memory is in ram")
	case (s.RAM|s.Size)%uint64(block) != 0:
		n.Fail("%d bytes are not a multiple of the block size %d", s.RAM|s.Size, block)
	}
	return s
}
