package nvmetcp

import (
	"context"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// Profile is what an identification found out about one namespace.
type Profile struct {
	Subsystem     string // NQN
	NSID          uint32
	Identity      Identity
	Serial, Model string // of the subsystem
	BlockSize     uint32 // bytes: 512 or 4096
	Size          uint64 // bytes
	limits        blk.Limits
	// Group is the ANA group, 0 if the subsystem has none; State its state as
	// this controller reports it.
	Group uint32
	State uint8
}

// Identity are the identifiers of a namespace (NVMe Base 4.5.1); all zero bytes
// mean that there is none of that kind.
type Identity struct {
	UUID, NGUID [16]byte
	EUI64       [8]byte
}

// Device is the strongest identifier, spelled as the kernel's wwid:
// "uuid.<uuid>", "eui.<nguid>" or "eui.<eui64>"; empty if there is none.
func (i *Identity) Device() string { return "" }

// Strong lists every identifier, so that none may differ between paths (I1).
func (i *Identity) Strong() string { return "" }

// Matches reports whether wwid spells one of the identifiers.
func (i *Identity) Matches(wwid string) bool { return false }

// Limits is what commands to the namespace may be.
func (p *Profile) Limits() blk.Limits { return p.limits }

// Identify reads identity, size, limits and ANA state of a namespace. It always
// reads the ANA log too, so that no state of an earlier connection is believed.
// ErrNoNamespace: the namespace is not there, or not attached to this controller.
func (c *Controller) Identify(ctx context.Context, nsid uint32) (*Profile, error) {
	return nil, ErrClosed
}

// Access reads the ANA state alone: for a namespace in a state that takes no
// I/O. 0: the subsystem has no ANA.
func (c *Controller) Access(ctx context.Context, nsid uint32) (state uint8, err error) {
	return 0, ErrClosed
}
