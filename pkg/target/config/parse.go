package config

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"path"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// Parse reads and checks a configuration in YAML (or JSON, which is YAML).
func Parse(b []byte) (*Config, error) {
	n, err := parseYAML(b)
	if err != nil {
		return nil, err
	}
	c := &Config{}
	n.object("discovery", "targets")
	if d := n.key("discovery"); d.given() {
		d.object("auth", "dhchap")
		c.Discovery, c.DiscoveryDHChap = parseAuth(d.key("auth")), parseDHChap(d.key("dhchap"))
	}
	for _, t := range n.key("targets").list(maxTargets) {
		c.Targets = append(c.Targets, parseTarget(t))
	}
	if len(c.Targets) == 0 {
		n.key("targets").fail("want at least one target")
	}
	if n.r.err == nil {
		c.check(n)
	}
	if n.r.err != nil {
		return nil, n.r.err
	}
	return c, nil
}

func parseAuth(n node) (a Auth) {
	if !n.given() {
		return a
	}
	n.object("secretFile")
	a.SecretFile = file(n.key("secretFile"))
	if a.SecretFile == "" {
		n.fail("want secretFile, a file with username= and password=")
	}
	return a
}

// file is an absolute path: a daemon's directory is nobody's business.
func file(n node) string {
	p := n.text(maxPath)
	if p != "" && (!path.IsAbs(p) || path.Clean(p) != p) {
		n.fail("%q is no absolute path in its shortest form", cut(p))
	}
	return p
}

func parseTarget(n node) (t Target) {
	if n.key("nqn").given() {
		return parseSubsystem(n)
	}
	n.object("name", "initiators", "auth", "unauthenticated", "portals", "groups", "depth", "luns")
	t.Name = name(n.key("name"))
	for _, i := range n.key("initiators").list(maxInitiators) {
		t.Initiators = append(t.Initiators, name(i))
	}
	t.Auth = parseAuth(n.key("auth"))
	t.Depth = int(n.key("depth").number(1, maxDepth, 0))
	t.parseShared(n, "initiators", DefaultPort)
	for _, l := range n.key("luns").list(maxLUNs) {
		t.LUNs = append(t.LUNs, parseLUN(l))
	}
	return t
}

// parseShared reads what both kinds of target have. access is the key of who is
// let in, which is read.
func (t *Target) parseShared(n node, access string, port uint16) {
	if i := n.key(access); i.given() && len(t.Initiators) == 0 {
		i.fail("is empty, which would let nobody in: leave it out to let all in")
	}
	t.Unauthenticated = n.key("unauthenticated").flag()
	for _, p := range n.key("portals").list(maxPortals) {
		t.Portals = append(t.Portals, parsePortal(p, t.NVMe, port))
	}
	if !n.key("portals").given() {
		t.Portals = []Portal{{Address: fmt.Sprintf("127.0.0.1:%d", port), TPGT: 1, Group: 1}}
	}
	for _, g := range n.key("groups").list(maxPortals) {
		t.Groups = append(t.Groups, parseGroup(g, t.NVMe))
	}
}

// want is a key that must be given.
func want(n node, key string) node {
	k := n.key(key)
	if !k.given() {
		k.fail("is missing")
	}
	return k
}

// name is an iSCSI name (RFC 7143 4.2.7), which targets compare byte by byte.
func name(n node) string {
	s := n.text(pdu.MaxNameLen)
	if !n.given() {
		n.fail("want an iSCSI name, such as iqn.2026-01.com.example:disk1")
	}
	if s == "" {
		return ""
	}
	if !strings.HasPrefix(s, "iqn.") && !strings.HasPrefix(s, "eui.") && !strings.HasPrefix(s, "naa.") ||
		len(s) < 5 || strings.ContainsAny(s, " ,/") || s != strings.ToLower(s) {
		n.fail("%q is no iSCSI name: it begins with iqn., eui. or naa. and has no blank, comma, slash or capital", cut(s))
	}
	return s
}

func parsePortal(n node, nvme bool, port uint16) (p Portal) {
	tag, def := "tpgt", uint64(1)
	if nvme {
		tag, def = "id", 0
	}
	n.object("address", "advertise", tag, "group")
	at := want(n, "address")
	a := address(at, port)
	p.Address = a.String()
	p.TPGT = uint16(n.key(tag).number(1, maxGroup, def))
	p.Group = uint16(n.key("group").number(1, maxGroup, 1))
	if tell := n.key("advertise"); tell.given() {
		adv := address(tell, port)
		if p.Advertise = adv.String(); adv.Addr().IsUnspecified() || adv.Port() == 0 {
			tell.fail("%s is no address to connect to", p.Advertise)
		}
	} else if a.IsValid() && a.Addr().IsUnspecified() {
		at.fail("%s is every address of the machine: say in 'advertise' which one discovery shall tell", p.Address)
	}
	return p
}

// address is IP:port or IP.
func address(n node, port uint16) netip.AddrPort {
	s := n.text(maxPath)
	if s == "" {
		return netip.AddrPort{}
	}
	if a, err := netip.ParseAddrPort(s); err == nil {
		return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	if err != nil {
		n.fail("%q is neither IP:port nor [IPv6]:port", cut(s))
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a.Unmap(), port)
}

// parseGroup reads the access state of a group of portals.
func parseGroup(n node, overNVMe bool) (g Group) {
	if overNVMe {
		n.object("id", "anaGroup", "state")
		g.ANAGroup = uint32(n.key("anaGroup").number(1, maxANAGroup, 0))
		g.ANA = state(n.key("state"), nvme.Optimized, nvme.NonOptimized, nvme.Inaccessible, nvme.PersistentLoss, nvme.Changing)
	} else {
		n.object("id", "state")
		g.State = state(n.key("state"), scsi.Optimized, scsi.NonOptimized, scsi.Standby, scsi.Unavailable, scsi.Offline, scsi.Transitioning)
	}
	g.ID = uint16(want(n, "id").number(1, maxGroup, 0))
	return g
}

// state is an access state by the name that tables print.
func state[S fmt.Stringer](n node, all ...S) (none S) {
	s := n.text(maxSerial)
	var names []string
	for _, v := range all {
		if v.String() == s {
			return v
		}
		names = append(names, v.String())
	}
	n.fail("is %s, want one of %s", kind(n.v), strings.Join(names, ", "))
	return none
}

func parseLUN(n node) (l LUN) {
	n.object("number", "store", "blockSize", "readOnly", "writeThrough", "thick", "wwid", "serial")
	l.Number = uint32(want(n, "number").number(0, maxLUN, 0))
	l.parseStored(n)
	if w := n.key("wwid"); w.given() {
		l.Identity = identity(w)
	}
	if s := n.key("serial"); s.given() {
		if l.Identity.Serial = s.text(maxSerial); strings.ContainsFunc(l.Identity.Serial, func(r rune) bool { return r > '~' }) {
			s.fail("has other characters than ASCII")
		}
		if l.Identity == (scsi.Identity{Serial: l.Identity.Serial}) {
			s.fail("a serial needs a wwid beside it: two LUNs may have one serial, but no wwid")
		}
	}
	return l
}

// parseStored reads what LUNs and namespaces have alike.
func (l *LUN) parseStored(n node) {
	l.BlockSize = uint32(n.key("blockSize").number(512, 4096, 512))
	if l.BlockSize != 512 && l.BlockSize != 4096 {
		n.key("blockSize").fail("%d is neither 512 nor 4096", l.BlockSize)
		l.BlockSize = 512 // goes on until the end, as all of this does
	}
	l.ReadOnly, l.WriteThrough, l.Thick = n.key("readOnly").flag(), n.key("writeThrough").flag(), n.key("thick").flag()
	l.Store = parseStore(want(n, "store"), l.BlockSize)
}

// identity is naa.… with 16 or 32 digits, or eui.… with 16 (SPC-4 7.8.6).
func identity(n node) (i scsi.Identity) {
	s := strings.ToLower(n.text(maxSerial))
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
		n.fail("%q is neither naa. with 16 hex digits (first 2, 3 or 5) or 32 (first 6), nor eui. with 16", cut(s))
	}
	return i
}

func parseStore(n node, block uint32) (s Store) {
	n.object("ram", "file", "size", "direct")
	s.RAM, s.File = n.key("ram").size(maxRAM), file(n.key("file"))
	s.Size, s.Direct = n.key("size").size(maxSize), n.key("direct").flag()
	switch {
	case (s.RAM == 0) == (s.File == ""):
		n.fail("want either ram or file")
	case s.RAM != 0 && (s.Size != 0 || s.Direct):
		n.fail("size and direct are for files; the size of memory is in ram")
	case (s.RAM|s.Size)%uint64(block) != 0:
		n.fail("%d bytes are not a multiple of the block size %d", s.RAM|s.Size, block)
	}
	return s
}
