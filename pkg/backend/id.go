package backend

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
)

// ID names a volume or snapshot within a backend. Both parts are lower-case
// letters, digits and inner hyphens: they become file names.
type ID struct{ Pool, Object string }

// String is "pool.object".
func (id ID) String() string { return id.Pool + "." + id.Object }

// IsZero reports that it names nothing.
func (id ID) IsZero() bool { return id == ID{} }

// Less is the order of lists: by pool, then object.
func (id ID) Less(o ID) bool {
	if id.Pool != o.Pool {
		return id.Pool < o.Pool
	}
	return id.Object < o.Object
}

// Check refuses parts that could be anything but a name.
func (id ID) Check() error {
	if !ValidName(id.Pool, MaxPool) {
		return fmt.Errorf("%w: pool name %q: want 1..%d of a-z, 0-9 and inner hyphens", ErrInvalid, clip(id.Pool), MaxPool)
	}
	if !ValidName(id.Object, MaxObject) {
		return fmt.Errorf("%w: object name %q: want 1..%d of a-z, 0-9 and inner hyphens", ErrInvalid, clip(id.Object), MaxObject)
	}
	return nil
}

// ParseID reads "pool.object", strictly.
func ParseID(s string) (ID, error) {
	pool, object, ok := strings.Cut(s, ".")
	id := ID{Pool: pool, Object: object}
	if !ok {
		return ID{}, fmt.Errorf("%w: %q is not pool.object", ErrInvalid, clip(s))
	}
	if err := id.Check(); err != nil {
		return ID{}, err
	}
	return id, nil
}

// ValidName reports whether s is 1..limit bytes of a-z, 0-9 and inner hyphens.
func ValidName(s string, limit int) bool {
	if s == "" || len(s) > limit || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// clip keeps hostile input out of messages.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// Kinds of objects, the first letter of their names.
const (
	VolumeObject   = "v"
	SnapshotObject = "s"
)

// ObjectName is the name of the object that a tenant's creation with this name
// makes: the same for each repetition, another for each tenant.
func ObjectName(kind, tenant, name string) string {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%s\x00%s\x00%s", kind, tenant, name)
	enc := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil))
	return kind + "-" + strings.ToLower(enc[:26])
}
