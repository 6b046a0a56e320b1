// Package export is how an agent serves volumes to nodes: the interface, which
// the packages below implement, and the names and identities that all of them
// use, so that a volume looks the same whoever serves it.
//
// What is exported is volatile (configfs forgets it at reboot, the embedded
// target with its process): the agent's journal has what should be, and Ensure
// makes it so again, identically.
package export

import (
	"context"
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Exporter serves volumes through one transport. Methods may be called from any
// goroutine, but not two at a time for one volume. Errors wrap those of package
// backend.
type Exporter interface {
	// Kind is "embedded", "lio" or "nvmet".
	Kind() string
	Transport() backend.Transport
	// Portals are where nodes find what is exported.
	Portals() []backend.Portal
	// Target is the name under which a volume is served to an initiator: what its
	// Connection says. All portals serve it under this name. Most exporters have one
	// for all initiators, which is function Target's; the kernel's nvmet has one for
	// each, because it cannot end the controllers of one host alone.
	Target(identity, initiator string) string
	// Ensure makes the volume served exactly as e says, to exactly those that
	// e.Access names, and returns when it is: nothing of an initiator that is not
	// named any more can change the volume from then on (I9): its access is
	// revoked, its sessions are gone, what they had in flight is drained. Called
	// again it repairs what differs, and says in changed whether anything did.
	// Sessions of those that stay are not disturbed if the transport allows it;
	// when ctx ends first, the access is revoked and the drain is not known to be
	// over: the error is backend.ErrBusy, and the next call goes on.
	Ensure(ctx context.Context, e Export) (changed bool, err error)
	// Revoke is the part of Ensure that puts out who is not in stay, and waits as it
	// does. It needs no backing, and leaves all else as it is: what is wrong with a
	// volume must not keep in who has lost it.
	Revoke(ctx context.Context, volume backend.ID, identity string, stay []string) error
	// Remove ends the volume's export, as Ensure with nobody in Access does, and
	// lets go of the backing. It succeeds if there is none.
	Remove(ctx context.Context, volume backend.ID, identity string) error
	// Resize tells initiators that the backing is e.Size bytes long now.
	Resize(ctx context.Context, e Export) error
	// Quiesce holds back all writes of a volume, and returns when those begun are
	// in the backing, durably; resume lets them go on. A volume that is not
	// exported is quiet. An exporter that has no such thing says
	// backend.ErrUnsupported, whatever the volume.
	Quiesce(ctx context.Context, identity string) (resume func(), err error)
	// Exported lists what is served under our names, for the reconciler: also what
	// nobody knows any more.
	Exported(ctx context.Context) ([]Exported, error)
	// Sessions lists who is connected.
	Sessions(ctx context.Context) ([]Session, error)
	// Close ends what runs in this process. What the kernel serves stays.
	Close() error
}

// Export is a volume as it should be served.
type Export struct {
	Volume   backend.ID
	Identity string // 32 hexadecimal digits, see names.go
	Backing  store.Backing
	Size     int64 // bytes
	// Cache: completed writes may be lost with the storage host's power until they
	// are flushed. It must be told to initiators as it is (I4).
	Cache bool
	// Discard: trims give space back.
	Discard bool
	Access  []Access
}

// Access is one initiator's access.
type Access struct {
	Initiator string // iSCSI name or NQN, as the node logs in
	HostID    string // NVMe, 32 hexadecimal digits
	// ReadOnly is enforced where the transport can; see the packages below.
	ReadOnly bool
	Auth     backend.Auth
}

// Exported is what is served.
type Exported struct {
	Identity   string
	Target     string
	Initiators []string
}

// Session is one initiator's connection to a volume at a portal.
type Session struct {
	Identity  string // of the volume
	Initiator string
	Portal    string // address, as in Portals; "" if it is not known
}

// CannotQuiesce is Quiesce of an exporter that cannot hold writes back.
func CannotQuiesce(kind string) (resume func(), _ error) {
	return nil, fmt.Errorf("%w: the kernel's target, %s, cannot hold writes back", backend.ErrUnsupported, kind)
}
