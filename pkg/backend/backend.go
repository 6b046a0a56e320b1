// Package backend is the interface of everything that can provision volumes:
// what the controller asks of storage, in one vocabulary, with typed errors.
//
// Every mutating verb is convergent: called again with the same arguments, five
// times at once, or after its caller or its server was killed half way, it ends
// in the same state. Package contract holds the test that every backend passes.
package backend

import (
	"context"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/secret"
)

// Backend provisions, publishes and fences volumes. Its methods may be called
// from any goroutine; each returns when its context ends at the latest, and then
// with an error: an outcome that is not known is never a success.
type Backend interface {
	// Info says what the backend is and can.
	Info(ctx context.Context) (Info, error)

	// CreateVolume makes a volume, or finds the one an earlier call with this name
	// made: ErrConflict if that is another (size, source, pool).
	CreateVolume(ctx context.Context, r CreateVolume) (Volume, error)
	// Volume is ErrNotFound if there is none.
	Volume(ctx context.Context, id ID) (Volume, error)
	// DeleteVolume succeeds if there is none. A published volume is ErrInUse.
	DeleteVolume(ctx context.Context, id ID) error
	// ExpandVolume makes a volume at least size.Required bytes long; one that is,
	// is a success. Initiators are told. Beyond size.Limit is ErrRange.
	ExpandVolume(ctx context.Context, id ID, size Size) (Volume, error)
	// TuneVolume replaces what is kept with the volume for its nodes, and counts
	// the generation up, unless nothing changed.
	TuneVolume(ctx context.Context, id ID, tunables map[string]string) (Volume, error)
	// Volumes lists in the order of IDs.
	Volumes(ctx context.Context, page Page) ([]Volume, string, error)

	// CreateSnapshot makes a crash-consistent snapshot, or finds the one an earlier
	// call with this name made: ErrConflict if that is of another volume.
	CreateSnapshot(ctx context.Context, r CreateSnapshot) (Snapshot, error)
	// Snapshot is ErrNotFound if there is none.
	Snapshot(ctx context.Context, id ID) (Snapshot, error)
	// DeleteSnapshot succeeds if there is none. Clones of it live on.
	DeleteSnapshot(ctx context.Context, id ID) error
	// Snapshots lists in the order of IDs; of one volume if that is not zero.
	Snapshots(ctx context.Context, of ID, page Page) ([]Snapshot, string, error)

	// Capacity is what a pool has room for.
	Capacity(ctx context.Context, pool string) (Capacity, error)

	// Publish gives one node access. Called again it returns the same Connection,
	// epoch included, until Unpublish. ErrInUse, with the node, if another node has
	// the volume and not both are shared, ErrConflict if the node has it in another
	// mode, ErrFenced if the node is fenced.
	Publish(ctx context.Context, r Publish) (Connection, error)
	// Unpublish returns when nothing that the node ever sent under the publication
	// can still change the volume (I9): access revoked, sessions gone, what was in
	// flight drained. It succeeds if there is no such publication or volume. An
	// empty node means all nodes.
	Unpublish(ctx context.Context, id ID, node string) error
	// Publications lists in the order of volume IDs, then nodes.
	Publications(ctx context.Context, f PublicationFilter, page Page) ([]Publication, string, error)

	// Fence unpublishes all volumes of a node as Unpublish does, and refuses the
	// node until Unfence. The mark is durable.
	Fence(ctx context.Context, node string) error
	// Unfence lifts the mark; there may be none.
	Unfence(ctx context.Context, node string) error
	// Fenced lists the nodes that are marked.
	Fenced(ctx context.Context) ([]string, error)

	// Watch calls f for each event from now on, one at a time, until ctx ends. Slow
	// watchers lose the oldest events, and are told so by an event of EventsLost.
	Watch(ctx context.Context, f func(Event)) error
}

// Transport is how a volume is reached.
type Transport string

// The transports.
const (
	ISCSI Transport = "iscsi"
	NVMe  Transport = "nvme-tcp"
)

// Info is what a backend is.
type Info struct {
	Kind    string // "agent", "static", "memory"
	Version string
	// Boot changes when the storage host lost what it had not written: it started
	// anew. Empty if that is not known.
	Boot  string
	Pools []Pool
}

// Pool is a place for volumes.
type Pool struct {
	Name string
	Kind string // of its store: "lvm-thin", "directory"
	// Transports that its volumes can be published through.
	Transports []Transport
	// Snapshots: the pool can make snapshots and clones at all.
	// SnapshotsInUse: also of a volume that is published.
	Snapshots, SnapshotsInUse bool
	// Thin: volumes take space as they are written to.
	Thin bool
	// Step is what sizes are rounded up to, bytes; Min and Max bound a volume.
	Step, Min, Max int64
}

// Size is what a caller wants, bytes. Limit 0 is none.
type Size struct{ Required, Limit int64 }

// CreateVolume asks for a volume.
type CreateVolume struct {
	// Name is the key of repeated calls: any text of 1..128 bytes (CSI).
	Name string
	Pool string
	Size Size
	// Source is what it is a copy of: the zero value is nothing.
	Source Source
	// Tunables are kept with the volume, at generation 1.
	Tunables map[string]string
}

// Source is the volume or snapshot that a volume is a copy of; not both.
type Source struct{ Volume, Snapshot ID }

// IsZero reports that there is no source.
func (s Source) IsZero() bool { return s == Source{} }

// Content is what is known of the bytes of a volume: I7 lets a node make a file
// system only where nothing was ever written.
type Content string

// What is known of a volume's bytes.
const (
	// ContentUnknown: nothing is known; the node must look.
	ContentUnknown Content = "unknown"
	// ContentBlank: nothing was ever written.
	ContentBlank Content = "blank"
	// ContentWritten: something was.
	ContentWritten Content = "written"
	// ContentCopy: it was made from a volume or snapshot.
	ContentCopy Content = "copy"
)

// Volume is a volume.
type Volume struct {
	ID      ID
	Name    string // as it was asked for
	Size    int64  // bytes, the real one
	Source  Source
	Content Content
	// Identity is random per creation, 32 lower-case hexadecimal digits: what
	// device identities are made of (I1).
	Identity string
	Created  time.Time
	// Tunables and the count of their changes, from 1 if there ever were any.
	Tunables   map[string]string
	Generation int64
}

// CreateSnapshot asks for a snapshot.
type CreateSnapshot struct {
	Name string // as in CreateVolume
	Of   ID
}

// Snapshot is a snapshot. It outlives its volume.
type Snapshot struct {
	ID      ID
	Name    string
	Of      ID
	Size    int64 // bytes, of the volume at that time
	Created time.Time
}

// Capacity is what a pool has room for, bytes.
type Capacity struct {
	// Available is the sum of what can be created, MaxVolume the largest volume.
	Available, MaxVolume, MinVolume int64
	// Total and Used are physical.
	Total, Used int64
}

// Publish asks for one node's access to a volume.
type Publish struct {
	Volume ID
	Node   string // its name, 1..253 bytes
	// Initiator is the node's base name: an iSCSI name, or an NQN, by Transport.
	// The backend may append the epoch: Connection.Initiator is what to use.
	Initiator string
	Transport Transport
	ReadOnly  bool
	// Shared: other nodes may have the volume at the same time if they are, too.
	Shared bool
	// Auth may differ in a repeated call: then it is changed, for logins to come.
	Auth Auth
}

// Auth is what the node and the target must know of each other. The zero value is
// nothing. It is written down where the backend keeps its exports, and nowhere
// else (I10).
type Auth struct {
	CHAP   CHAP   // ISCSI
	DHCHAP DHCHAP // NVMe
}

// CHAP are the secrets of iSCSI; MutualUser and MutualSecret are what the target
// proves, or empty.
type CHAP struct {
	User         string
	Secret       secret.Text
	MutualUser   string
	MutualSecret secret.Text
}

// DHCHAP are the secrets of NVMe in-band authentication in their DHHC-1 form;
// Controller is what the subsystem proves, or empty.
type DHCHAP struct{ Host, Controller secret.Text }

// Connection is all a node needs to reach a volume.
type Connection struct {
	Transport Transport
	Target    string // iSCSI name, or NQN
	LUN       uint32 // ISCSI
	NSID      uint32 // NVMe
	Portals   []Portal
	// WWID is the device's identity as Linux writes it: "3" and the NAA in
	// hexadecimal, or "uuid." and the UUID (I1).
	WWID string
	// Initiator is the name to log in with, HostID (NVMe) the host identifier, 32
	// hexadecimal digits.
	Initiator string
	HostID    string
	// Epoch is the publication's: random, as long as it lasts. "" if the backend
	// cannot tell two publications apart.
	Epoch      string
	Size       int64 // bytes
	ReadOnly   bool
	Content    Content
	Tunables   map[string]string
	Generation int64
}

// Portal is one way to a target.
type Portal struct {
	Address string // IP:port
	// Group is the target portal group tag, or the NVMe port.
	Group uint16
}

// PublicationFilter selects publications; zero fields select all.
type PublicationFilter struct {
	Volume ID
	Node   string
}

// Publication is one node's access.
type Publication struct {
	Volume    ID
	Node      string
	Transport Transport
	Initiator string // what the node logs in with
	Epoch     string
	ReadOnly  bool
	Shared    bool
	// Revoking: Unpublish has begun, and has not returned yet.
	Revoking bool
	// Sessions that this node has now, by portal address.
	Sessions map[string]int
}

// Page is a part of a list: at most Max entries (0: the backend's own bound)
// after Token, which is what the call before returned; "" is the beginning, and
// as a result the end. A token that was never given is ErrToken.
type Page struct {
	Token string
	Max   int
}

// EventKind says what happened.
type EventKind string

// What may happen.
const (
	PoolFilling    EventKind = "PoolFilling"    // above a mark: creations are refused
	PoolFull       EventKind = "PoolFull"       // writes fail or wait
	PoolRecovered  EventKind = "PoolRecovered"  // below the marks again
	SessionGained  EventKind = "SessionGained"  // a node's first at a portal
	SessionLost    EventKind = "SessionLost"    // a node's last at a portal
	ExportRepaired EventKind = "ExportRepaired" // what was served was not what should be
	OrphanFound    EventKind = "OrphanFound"    // something of ours that nothing refers to
	NodeFenced     EventKind = "NodeFenced"
	EventsLost     EventKind = "EventsLost" // a watcher was too slow
)

// Event is something that happened at the storage. Fields that do not apply are
// zero.
type Event struct {
	Time    time.Time
	Kind    EventKind
	Warning bool
	Pool    string
	Volume  ID
	Node    string
	Portal  string // address
	Message string // for people
}
