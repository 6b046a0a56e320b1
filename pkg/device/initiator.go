package device

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
)

// host is this host's name and a digest of it and the machine id: the same after
// a restart.
func host() (name string, sum [sha256.Size]byte) {
	name, _ = os.Hostname()
	id, _ := os.ReadFile("/etc/machine-id")
	return name, sha256.Sum256(append(id, name...))
}

// DefaultInitiator is the initiator name of this host when none is given:
// stable across restarts, made of the machine id and the host name.
func DefaultInitiator() string {
	name, sum := host()
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, name)
	if len(clean) > 63 {
		clean = clean[:63]
	}
	return "iqn.2026-01.io.csi-mpath:" + clean + "." + hex.EncodeToString(sum[:4])
}

// uuidNQN begins an NQN that is a UUID (NVMe Base 4.5).
const uuidNQN = "nqn.2014-08.org.nvmexpress:uuid:"

// DefaultHostNQN is DefaultInitiator for NVMe: a UUID of the same making.
func DefaultHostNQN() string {
	_, sum := host()
	return uuidNQN + uuidText(uuid(sum))
}

// HostIDOf is the host identifier that goes with a host NQN: its UUID, or one
// made of the name. Targets refuse a name that comes with several.
func HostIDOf(nqn string) [16]byte {
	if s, ok := strings.CutPrefix(nqn, uuidNQN); ok {
		if id, err := ParseUUID(s); err == nil {
			return id
		}
	}
	return uuid(sha256.Sum256([]byte(nqn)))
}

// uuid makes a digest a UUID (RFC 9562 5.8).
func uuid(sum [sha256.Size]byte) (id [16]byte) {
	copy(id[:], sum[:])
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return id
}

func uuidText(id [16]byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// ParseUUID reads a UUID in its usual form, 8-4-4-4-12.
func ParseUUID(s string) (id [16]byte, err error) {
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err == nil && len(b) == len(id) {
		id = [16]byte(b)
		if strings.EqualFold(uuidText(id), s) && id != [16]byte{} {
			return id, nil
		}
	}
	return [16]byte{}, fmt.Errorf("%q is no UUID like 3e5a3f5e-8a0c-4f57-9d06-0f6f2b0a1c11", s)
}
