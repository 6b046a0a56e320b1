package config

import (
	"encoding/hex"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"

	"github.com/csi-mpath/csi-mpath/pkg/strictyaml"
)

// parseSubsystem reads a target that has an nqn: it is served over NVMe/TCP.
func parseSubsystem(n strictyaml.Node) (t Target) {
	n.Object("nqn", "hosts", "auth", "unauthenticated", "portals", "groups", "depth", "queues", "namespaces")
	t.NVMe = true
	t.Name = nqn(n.Key("nqn"))
	t.HostAuth = map[string]Auth{}
	for _, h := range n.Key("hosts").List(maxInitiators) {
		h.Object("nqn", "auth")
		host := nqn(h.Want("nqn"))
		t.Initiators = append(t.Initiators, host)
		if a := h.Key("auth"); a.Given() {
			t.HostAuth[host] = parseDHChap(a)
		}
	}
	t.Auth = parseDHChap(n.Key("auth"))
	t.Depth = int(n.Key("depth").Number(2, maxQueueDepth, 0))
	t.Queues = int(n.Key("queues").Number(1, maxQueues, 0))
	t.parseShared(n, "hosts", DefaultNVMePort)
	for _, s := range n.Key("namespaces").List(maxNSID) {
		t.LUNs = append(t.LUNs, parseNamespace(s))
	}
	return t
}

// nqn is an NVMe qualified name (Base 4.7).
func nqn(n strictyaml.Node) string {
	s := n.Text(nvme.MaxNQN)
	if s == "" {
		return ""
	}
	if nvme.CheckNQN(s) != nil || s == nvme.DiscoveryNQN {
		n.Fail("%q is no NQN: want nqn.YYYY-MM.domain:name", strictyaml.Cut(s))
	}
	return s
}

func parseDHChap(n strictyaml.Node) (a Auth) {
	if !n.Given() {
		return a
	}
	n.Object("secretFile", "controllerSecretFile")
	a.SecretFile, a.ControllerSecretFile = n.Key("secretFile").AbsPath(), n.Key("controllerSecretFile").AbsPath()
	if a.SecretFile == "" {
		n.Fail("want secretFile, a file with the host's DHHC-1 secret")
	}
	return a
}

func parseNamespace(n strictyaml.Node) (l LUN) {
	n.Object("nsid", "store", "blockSize", "readOnly", "writeThrough", "thick", "uuid", "nguid", "eui64", "anaGroup")
	l.Number = uint32(n.Want("nsid").Number(1, maxNSID, 0))
	l.parseStored(n)
	l.NVMe = nvme.Identity{UUID: uuid(n.Key("uuid")), NGUID: digits(n.Key("nguid"), 32), EUI64: digits(n.Key("eui64"), 16)}
	l.ANAGroup = uint32(n.Key("anaGroup").Number(1, maxANAGroup, 1))
	return l
}

// digits is an identifier of so many hex digits, not all zero.
func digits(n strictyaml.Node, want int) string {
	s := strings.ToLower(n.Text(maxSerial))
	if s == "" {
		return ""
	}
	if _, err := hex.DecodeString(s); err != nil || len(s) != want || strings.Trim(s, "0") == "" {
		n.Fail("%q is not %d hex digits, or they are all zero", strictyaml.Cut(s), want)
	}
	return s
}

// uuid is 8-4-4-4-12 hex digits, not all zero (RFC 9562).
func uuid(n strictyaml.Node) string {
	s := strings.ToLower(n.Text(maxSerial))
	if s == "" {
		return ""
	}
	plain := strings.ReplaceAll(s, "-", "")
	_, err := hex.DecodeString(plain)
	if err != nil || len(s) != 36 || len(plain) != 32 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' || strings.Trim(plain, "0") == "" {
		n.Fail("%q is no UUID", strictyaml.Cut(s))
	}
	return s
}
