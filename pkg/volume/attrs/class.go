package attrs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/tunable"
)

// ID is a volume's handle: "1.<backend>.<pool>.<object>", at most 128 bytes. A
// static volume has any other handle.
type ID struct {
	Backend string
	Object  backend.ID
}

// idVersion begins every ID.
const idVersion = "1"

// String is the handle.
func (id ID) String() string { return fmt.Sprintf("%s.%s.%s", idVersion, id.Backend, id.Object) }

// ParseID reads a handle, strictly.
func ParseID(s string) (ID, error) {
	parts := strings.Split(s, ".")
	if len(s) > maxID || len(parts) != 4 || parts[0] != idVersion || !backend.ValidName(parts[1], MaxBackend) {
		return ID{}, invalid("volume ID %q is not %s.backend.pool.object", clip(s), idVersion)
	}
	id := ID{Backend: parts[1], Object: backend.ID{Pool: parts[2], Object: parts[3]}}
	if err := id.Object.Check(); err != nil {
		return ID{}, invalid("volume ID %q: %w", clip(s), err)
	}
	return id, nil
}

// Class are the parameters of a StorageClass.
type Class struct {
	Backend   string
	Pool      string            // empty: the backend's only one
	Transport backend.Transport // empty: what the pool has
	Mkfs      []string          // options for mkfs, in order
	Tunables  map[string]string // of the volume to be
}

const (
	keyBackend     = "backend"
	keyPool        = "pool"
	keyMkfsOptions = "mkfsOptions"
)

// ParseClass reads a StorageClass's parameters; an unknown key is an error that
// names it.
func ParseClass(params map[string]string) (Class, error) {
	if err := bounded(params); err != nil {
		return Class{}, err
	}
	tunables, rest := tunable.Split(params)
	if _, err := tunable.Parse(tunables); err != nil {
		return Class{}, invalid("%w", err)
	}
	r := reader{m: rest}
	c := Class{Backend: r.take(keyBackend), Pool: r.take(keyPool), Transport: backend.Transport(r.take(keyTransport))}
	if len(tunables) > 0 {
		c.Tunables = tunables
	}
	switch {
	case c.Backend != "" && !backend.ValidName(c.Backend, MaxBackend):
		return Class{}, invalid("backend %q is no name", clip(c.Backend))
	case c.Pool != "" && !backend.ValidName(c.Pool, backend.MaxPool):
		return Class{}, invalid("pool %q is no name", clip(c.Pool))
	case c.Transport != "" && c.Transport != backend.ISCSI && c.Transport != backend.NVMe:
		return Class{}, invalid("transport %q: want %s or %s", clip(string(c.Transport)), backend.ISCSI, backend.NVMe)
	}
	var err error
	if c.Mkfs, err = parseMkfs(r.take(keyMkfsOptions)); err != nil {
		return Class{}, err
	}
	known := append([]string{keyBackend, keyPool, keyTransport, keyMkfsOptions}, tunable.Names()...)
	return c, refuseRest("StorageClass parameters", rest, known)
}

// parseMkfs splits options at blanks. They are given to mkfs as they are, never
// to a shell; what could name a file or a device is refused.
func parseMkfs(s string) ([]string, error) {
	out := strings.Fields(s)
	if len(out) > maxMkfs || len(s) > maxMkfsBytes {
		return nil, invalid("mkfsOptions: %d options of %d bytes, at most %d of %d", len(out), len(s), maxMkfs, maxMkfsBytes)
	}
	for _, o := range out {
		if strings.ContainsAny(o, "/") || strings.ContainsFunc(o, func(r rune) bool { return r < ' ' || r > '~' }) {
			return nil, invalid("mkfsOptions: %q: no paths and no control characters", clip(o))
		}
	}
	return out, nil
}

// VolumeContext is what a dynamic volume's volume_context says to its node. It
// cannot be changed later, so no tunables are in it.
func VolumeContext(c Class) map[string]string {
	m := map[string]string{}
	if len(c.Mkfs) > 0 {
		m[keyMkfsOptions] = strings.Join(c.Mkfs, " ")
	}
	if c.Transport != "" {
		m[keyTransport] = string(c.Transport)
	}
	return m
}

// Traits are what a node has to know of a volume besides its attachment.
type Traits struct {
	Transport backend.Transport // that was asked for; empty: any
	Mkfs      []string
}

// ParseVolumeContext reads a volume_context of either kind for what is in
// Traits; a static volume's also has what ParseStatic reads.
func ParseVolumeContext(m map[string]string) (Traits, error) {
	if err := bounded(m); err != nil {
		return Traits{}, err
	}
	mkfs, err := parseMkfs(m[keyMkfsOptions])
	if err != nil {
		return Traits{}, err
	}
	if IsStatic(m) {
		return Traits{Mkfs: mkfs}, nil
	}
	rest := maps.Clone(m)
	delete(rest, keyMkfsOptions)
	t := backend.Transport(rest[keyTransport])
	if t != "" && t != backend.ISCSI && t != backend.NVMe {
		return Traits{}, invalid("volume_context: transport %q", clip(string(t)))
	}
	delete(rest, keyTransport)
	return Traits{Transport: t, Mkfs: mkfs}, refuseRest("volume_context", rest, []string{keyMkfsOptions, keyTransport})
}

// IsStatic reports that a volume_context describes a volume by itself.
func IsStatic(m map[string]string) bool {
	return slices.ContainsFunc([]string{keyIQN, keyNQN}, func(k string) bool { return m[k] != "" })
}
