// Package attrs reads and writes what travels with a volume: its ID, a
// StorageClass's parameters, volume_context, and publish_context. Both halves of
// the driver use it, so that there is one notion of each key.
//
// It is pure. All of it was written by somebody else: every key is known or
// refused by name, and everything has a bound.
package attrs

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/portal"
	"github.com/csi-mpath/csi-mpath/pkg/tunable"
)

// ErrInvalid is wrapped by every error of this package.
var ErrInvalid = errors.New("invalid")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}

// Fencing is how a volume's last holder is kept from writing on.
type Fencing string

// The ways.
const (
	// FencingBackend: the backend revokes access (I9).
	FencingBackend Fencing = "backend"
	// FencingReservation: the next holder takes a reservation, and preempts.
	FencingReservation Fencing = "reservation"
	// FencingNone: nothing does; somebody asked for that.
	FencingNone Fencing = "none"
)

// Attachment is all a node needs to reach a volume. Generation 0 are tunables
// that a static volume was written down with.
type Attachment struct {
	backend.Connection
	Fencing Fencing
	// CHAP: the storage asks for it, so that secrets are needed.
	CHAP bool
}

// Check refuses an attachment that no node could use.
func (a *Attachment) Check() error {
	switch {
	case a.Transport != backend.ISCSI && a.Transport != backend.NVMe:
		return invalid("transport %q: want %s or %s", clip(string(a.Transport)), backend.ISCSI, backend.NVMe)
	case !validName(a.Transport, a.Target):
		return invalid("target %q is no %s of up to %d bytes", clip(a.Target), nameKind[a.Transport], maxName)
	case a.Initiator != "" && !validName(a.Transport, a.Initiator):
		return invalid("initiator %q is no %s of up to %d bytes", clip(a.Initiator), nameKind[a.Transport], maxName)
	case a.Transport == backend.ISCSI && a.LUN > maxLUN:
		return invalid("LUN %d: at most %d", a.LUN, maxLUN)
	case a.Transport == backend.NVMe && (a.NSID < 1 || a.NSID > maxNSID):
		return invalid("namespace ID %d: want 1 to %d", a.NSID, uint32(maxNSID))
	case a.Size < 0 || a.Size > maxSize:
		return invalid("size %d", a.Size)
	case a.Generation < 0:
		return invalid("generation %d", a.Generation)
	case !plain(a.WWID, maxWWID) || !plain(a.Epoch, maxEpoch):
		return invalid("wwid %q or epoch %q is too long, or has blanks", clip(a.WWID), clip(a.Epoch))
	case a.HostID != "" && !validHostID(a.HostID):
		return invalid("host ID %q: want 32 hexadecimal digits", clip(a.HostID))
	}
	if err := a.checkPortals(); err != nil {
		return err
	}
	if _, err := tunable.Parse(a.Tunables); err != nil {
		return invalid("%w", err)
	}
	return a.checkWords()
}

// checkPortals wants them whole and different: two paths to one portal are no
// redundancy.
func (a *Attachment) checkPortals() error {
	if len(a.Portals) == 0 || len(a.Portals) > maxPortals {
		return invalid("%d portals: want 1 to %d", len(a.Portals), maxPortals)
	}
	seen := map[string]bool{}
	for _, p := range a.Portals {
		n, err := portal.Normalize(p.Address, "")
		if err != nil || n != p.Address || strings.ContainsAny(n, ",/") {
			return invalid("portal %q: want host:port or [IPv6]:port", clip(p.Address))
		}
		if seen[n] {
			return invalid("portal %s is given twice", n)
		}
		seen[n] = true
	}
	return nil
}

// checkWords are those fields that hold one of a few words.
func (a *Attachment) checkWords() error {
	switch a.Content {
	case backend.ContentUnknown, backend.ContentBlank, backend.ContentWritten, backend.ContentCopy:
	default:
		return invalid("content %q", clip(string(a.Content)))
	}
	switch a.Fencing {
	case FencingBackend, FencingReservation, FencingNone:
		return nil
	}
	return invalid("fencing %q: want %s or %s", clip(string(a.Fencing)), FencingReservation, FencingNone)
}

// nameKind is what a target is called, for people.
var nameKind = map[backend.Transport]string{backend.ISCSI: "iSCSI name (iqn., eui. or naa.)", backend.NVMe: "NQN (nqn.)"}

// validName reports a name of the right kind; the initiators look closer.
func validName(t backend.Transport, s string) bool {
	if s == "" || !plain(s, maxName) {
		return false
	}
	if t == backend.NVMe {
		return strings.HasPrefix(s, "nqn.")
	}
	return strings.HasPrefix(s, "iqn.") || strings.HasPrefix(s, "eui.") || strings.HasPrefix(s, "naa.")
}

// plain reports up to limit bytes of printable ASCII without blanks or commas.
func plain(s string, limit int) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' || s[i] == ',' {
			return false
		}
	}
	return len(s) <= limit
}

func validHostID(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) == 32
}

// formatPortals is "10.0.0.1:3260/1,[::1]:3260/2": addresses and their groups.
func formatPortals(all []backend.Portal) string {
	out := make([]string, 0, len(all))
	for _, p := range all {
		out = append(out, p.Address+"/"+strconv.Itoa(int(p.Group)))
	}
	return strings.Join(out, ",")
}

func parsePortals(s string) (out []backend.Portal, err error) {
	for i, one := range strings.SplitN(s, ",", maxPortals+1) {
		if i == maxPortals {
			return nil, invalid("more than %d portals", maxPortals)
		}
		address, group, ok := strings.Cut(one, "/")
		n, err := strconv.ParseUint(group, 10, 16)
		if !ok || err != nil || strconv.FormatUint(n, 10) != group {
			return nil, invalid("portal %q: want address/group", clip(one))
		}
		out = append(out, backend.Portal{Address: address, Group: uint16(n)})
	}
	return out, nil
}

// bounded refuses a map that is too large to be looked at.
func bounded(m map[string]string) error {
	size := 0
	for k, v := range m {
		size += len(k) + len(v)
	}
	if len(m) > maxKeys || size > maxBytes {
		return invalid("%d keys of %d bytes together: at most %d of %d", len(m), size, maxKeys, maxBytes)
	}
	return nil
}

// foreign are keys that others add, and nobody here reads.
func foreign(key string) bool {
	return strings.HasPrefix(key, "csi.storage.k8s.io/") || strings.HasPrefix(key, "storage.kubernetes.io/")
}

// refuseRest names the first key that is left, what it is a key of, and what
// could have been meant.
func refuseRest(what string, m map[string]string, known []string) error {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if !foreign(k) {
			return invalid("%s: unknown key %q: use some of %s", what, clip(k), strings.Join(known, ", "))
		}
	}
	return nil
}

// clip keeps hostile input out of messages.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
