package config

import (
	"encoding/hex"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
)

// parseSubsystem reads a target that has an nqn: it is served over NVMe/TCP.
func parseSubsystem(n node) (t Target) {
	n.object("nqn", "hosts", "auth", "unauthenticated", "portals", "groups", "depth", "queues", "namespaces")
	t.NVMe = true
	t.Name = nqn(n.key("nqn"))
	t.HostAuth = map[string]Auth{}
	for _, h := range n.key("hosts").list(maxInitiators) {
		h.object("nqn", "auth")
		host := nqn(want(h, "nqn"))
		t.Initiators = append(t.Initiators, host)
		if a := h.key("auth"); a.given() {
			t.HostAuth[host] = parseDHChap(a)
		}
	}
	t.Auth = parseDHChap(n.key("auth"))
	t.Depth = int(n.key("depth").number(2, maxQueueDepth, 0))
	t.Queues = int(n.key("queues").number(1, maxQueues, 0))
	t.parseShared(n, "hosts", DefaultNVMePort)
	for _, s := range n.key("namespaces").list(maxNSID) {
		t.LUNs = append(t.LUNs, parseNamespace(s))
	}
	return t
}

// nqn is an NVMe qualified name (Base 4.7).
func nqn(n node) string {
	s := n.text(nvme.MaxNQN)
	if s == "" {
		return ""
	}
	if nvme.CheckNQN(s) != nil || s == nvme.DiscoveryNQN {
		n.fail("%q is no NQN: want nqn.YYYY-MM.domain:name", cut(s))
	}
	return s
}

func parseDHChap(n node) (a Auth) {
	if !n.given() {
		return a
	}
	n.object("secretFile", "controllerSecretFile")
	a.SecretFile, a.ControllerSecretFile = file(n.key("secretFile")), file(n.key("controllerSecretFile"))
	if a.SecretFile == "" {
		n.fail("want secretFile, a file with the host's DHHC-1 secret")
	}
	return a
}

func parseNamespace(n node) (l LUN) {
	n.object("nsid", "store", "blockSize", "readOnly", "writeThrough", "thick", "uuid", "nguid", "eui64", "anaGroup")
	l.Number = uint32(want(n, "nsid").number(1, maxNSID, 0))
	l.parseStored(n)
	l.NVMe = nvme.Identity{UUID: uuid(n.key("uuid")), NGUID: digits(n.key("nguid"), 32), EUI64: digits(n.key("eui64"), 16)}
	l.ANAGroup = uint32(n.key("anaGroup").number(1, maxANAGroup, 1))
	return l
}

// digits is an identifier of so many hex digits, not all zero.
func digits(n node, want int) string {
	s := strings.ToLower(n.text(maxSerial))
	if s == "" {
		return ""
	}
	if _, err := hex.DecodeString(s); err != nil || len(s) != want || strings.Trim(s, "0") == "" {
		n.fail("%q is not %d hex digits, or they are all zero", cut(s), want)
	}
	return s
}

// uuid is 8-4-4-4-12 hex digits, not all zero (RFC 9562).
func uuid(n node) string {
	s := strings.ToLower(n.text(maxSerial))
	if s == "" {
		return ""
	}
	plain := strings.ReplaceAll(s, "-", "")
	_, err := hex.DecodeString(plain)
	if err != nil || len(s) != 36 || len(plain) != 32 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' || strings.Trim(plain, "0") == "" {
		n.fail("%q is no UUID", cut(s))
	}
	return s
}
