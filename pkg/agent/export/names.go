package export

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// What the targets of all exporters say of themselves.
const (
	Vendor  = "csimpath" // SCSI vendor, 8 bytes
	Product = "volume"   // SCSI product, and the NVMe model
	// prefixes of what is ours: anything else is an administrator's.
	iqnPrefix = "iqn.2025-01.io.csi-mpath:vol:"
	nqnPrefix = "nqn.2025-01.io.csi-mpath:vol:"
)

// LUN and NSID are where a volume is in its own target.
const (
	LUN  = 0
	NSID = 1
)

// Target is the iSCSI name or NQN under which a volume is served.
func Target(t backend.Transport, identity string) string {
	if t == backend.NVMe {
		return nqnPrefix + identity
	}
	return iqnPrefix + identity
}

// Identity is the volume behind a target's name; ok false: it is not one of ours.
func Identity(target string) (identity string, ok bool) {
	for _, prefix := range []string{iqnPrefix, nqnPrefix} {
		if id, found := strings.CutPrefix(target, prefix); found {
			return id, ValidIdentity(id)
		}
	}
	return "", false
}

// ValidIdentity reports whether s is 32 lower-case hexadecimal digits.
func ValidIdentity(s string) bool {
	if len(s) != 32 || strings.ToLower(s) != s {
		return false
	}
	_, err := hex.DecodeString(s)
	return err == nil
}

// UUID is the identity in its dashed form.
func UUID(identity string) string {
	s := identity
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// NAA is the identity as a SCSI NAA designator: 6, the company 001405h that
// LIO uses, and 25 digits of the identity, as LIO makes it of the serial.
func NAA(identity string) string { return "6001405" + identity[:25] }

// Serial is the serial number of an NVMe subsystem, 20 bytes; SCSI unit serials
// are the whole identity.
func Serial(identity string) string { return identity[:20] }

// WWID is the identity as Linux shows it for a device of this transport.
func WWID(t backend.Transport, identity string) string {
	if t == backend.NVMe {
		return "uuid." + UUID(identity)
	}
	return "3" + NAA(identity)
}

// Initiator is the name for one publication: the node's, and the epoch, so that
// a node whose publication was revoked is not who it is under the next one.
func Initiator(base, epoch string) (string, error) {
	const most = 223 // bytes, of iSCSI names and of NQNs
	name := base + ":" + epoch
	if len(name) > most {
		return "", fmt.Errorf("%w: initiator name %q is %d bytes, at most %d with the epoch", backend.ErrInvalid, base, len(base), most-1-len(epoch))
	}
	return name, nil
}
