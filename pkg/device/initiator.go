package device

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
)

// DefaultInitiator is the initiator name of this host when none is given:
// stable across restarts, made of the machine id and the host name.
func DefaultInitiator() string {
	host, _ := os.Hostname()
	id, _ := os.ReadFile("/etc/machine-id")
	sum := sha256.Sum256(append(id, host...))
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, host)
	if len(clean) > 63 {
		clean = clean[:63]
	}
	return "iqn.2026-01.io.csi-mpath:" + clean + "." + hex.EncodeToString(sum[:4])
}
