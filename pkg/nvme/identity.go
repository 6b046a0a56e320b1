package nvme

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// Descriptor types of CNSDescriptors (NIDT, Base 5.1.13.2.3).
const (
	descEUI64 = 1
	descNGUID = 2
	descUUID  = 3
	descCSI   = 4
)

// descLens are the lengths (NIDL) that the types have.
var descLens = [...]int{descEUI64: 8, descNGUID: 16, descUUID: 16, descCSI: 1}

// Identity is what makes a namespace that one and no other (I1): compare with
// ==. In lower-case hex, the UUID with dashes; empty when the controller gives
// none, or all zeroes, which stand for none (B-16).
type Identity struct {
	UUID, NGUID, EUI64 string
}

// Descriptors are the identification descriptors of a namespace.
type Descriptors struct {
	Identity
	CommandSet uint8 // CSI: 0 NVM
}

// ParseDescriptors reads the list. It refuses a known type of another length,
// a type given twice with different content, and what runs past the end.
func ParseDescriptors(b []byte) (d Descriptors, err error) {
	for b = b[:min(len(b), IdentifyLen)]; len(b) >= 4 && b[1] != 0; {
		kind, n := b[0], int(b[1])
		if len(b) < 4+n {
			return Descriptors{}, fmt.Errorf("nvme: identifier of type %d runs past the end of the list", kind)
		}
		if err := d.take(kind, b[4:4+n]); err != nil {
			return Descriptors{}, err
		}
		b = b[4+n:]
	}
	return d, nil
}

func (d *Descriptors) take(kind uint8, id []byte) error {
	if kind == 0 || int(kind) >= len(descLens) {
		return nil // of a later edition
	}
	if len(id) != descLens[kind] {
		return fmt.Errorf("nvme: identifier of type %d has %d bytes, want %d", kind, len(id), descLens[kind])
	}
	var f *string
	v := hexID(id)
	switch kind {
	case descEUI64:
		f = &d.EUI64
	case descNGUID:
		f = &d.NGUID
	case descUUID:
		f, v = &d.UUID, dashed(v)
	case descCSI:
		d.CommandSet = id[0]
		return nil
	}
	return agree(f, v)
}

// agree sets f to v; two that are there must be equal.
func agree(f *string, v string) error {
	if v != "" && *f != "" && *f != v {
		return fmt.Errorf("nvme: the namespace has two identifiers of one type, %s and %s", *f, v)
	}
	if v != "" {
		*f = v
	}
	return nil
}

// hexID is an identifier in hex; zeroes are none.
func hexID(id []byte) string {
	if s := hex.EncodeToString(id); strings.Trim(s, "0") != "" {
		return s
	}
	return ""
}

// dashed is a UUID as people write it.
func dashed(v string) string {
	if len(v) != 32 {
		return v
	}
	return v[:8] + "-" + v[8:12] + "-" + v[12:16] + "-" + v[16:20] + "-" + v[20:]
}

// Identify joins what Identify Namespace says to the descriptors; where both
// give one they must agree.
func (i *Identity) Identify(n *Namespace) error {
	if err := agree(&i.NGUID, hexID(n.NGUID[:])); err != nil {
		return err
	}
	return agree(&i.EUI64, hexID(n.EUI64[:]))
}

// Append appends the descriptor list, IdentifyLen bytes.
func (d *Descriptors) Append(b []byte) []byte {
	at := len(b)
	for _, e := range [...]struct {
		kind uint8
		id   string
	}{{descUUID, strings.ReplaceAll(d.UUID, "-", "")}, {descNGUID, d.NGUID}, {descEUI64, d.EUI64}} {
		if id, err := hex.DecodeString(e.id); err == nil && len(id) == descLens[e.kind] {
			b = append(append(b, e.kind, byte(len(id)), 0, 0), id...)
		}
	}
	b = append(b, descCSI, 1, 0, 0, d.CommandSet)
	return append(b, make([]byte, IdentifyLen-(len(b)-at))...)
}

// None reports that nothing names the namespace: two may look alike.
func (i Identity) None() bool { return i == Identity{} }

// String is the strongest identifier, as the kernel's wwid attribute writes it.
func (i Identity) String() string {
	switch {
	case i.UUID != "":
		return "uuid." + i.UUID
	case i.NGUID != "":
		return "eui." + i.NGUID
	case i.EUI64 != "":
		return "eui." + i.EUI64
	}
	return "unidentified"
}

// Matches reports whether wwid, as a user writes it, is one of the
// identifiers: uuid.…, eui.…, nguid.…, or bare, in either case, with or
// without dashes or 0x.
func (i Identity) Matches(wwid string) bool {
	w := strings.ToLower(strings.TrimSpace(wwid))
	prefix, rest, found := strings.Cut(w, ".")
	if !found {
		prefix, rest = "", w
	}
	rest = strings.ReplaceAll(strings.TrimPrefix(rest, "0x"), "-", "")
	is := func(id string) bool { return id != "" && rest == strings.ReplaceAll(id, "-", "") }
	switch prefix {
	case "uuid":
		return is(i.UUID)
	case "eui", "nguid":
		return is(i.NGUID) || is(i.EUI64) && prefix == "eui"
	case "":
		return is(i.UUID) || is(i.NGUID) || is(i.EUI64)
	}
	return false
}
