// Package store is what an agent keeps the bytes of volumes in: the interface,
// which the packages below implement.
//
// The store itself is the truth about volumes and snapshots: a store that lost
// its agent's state directory is complete. An object is made in two phases, so
// that one that was not finished is recognized: a repetition finishes it, or
// begins anew.
package store

import (
	"context"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Store keeps volumes and snapshots of one pool. Names of objects are
// backend.ObjectName's: strict, unique in the pool. Methods may be called from
// any goroutine, but not two at a time for one object, which is the caller's
// business. Errors wrap those of package backend.
type Store interface {
	// Kind is "lvm-thin", "directory", ....
	Kind() string
	// Features are what the store can; they do not change while it is open.
	Features() Features
	// Create makes an object, or finishes one that a call with the same Spec began.
	// One that is finished is returned as it is, whatever Spec says: comparing is
	// the caller's business.
	Create(ctx context.Context, s Spec) (Object, error)
	// Object is backend.ErrNotFound if there is none, or none that is finished.
	Object(ctx context.Context, name string) (Object, error)
	// Objects lists all finished objects, in the order of their names.
	Objects(ctx context.Context) ([]Object, error)
	// Unfinished lists the names of those whose creation was not finished.
	Unfinished(ctx context.Context) ([]string, error)
	// Delete removes an object, finished or not; there may be none. It must not be
	// in use: the store finds out where it can (backend.ErrInUse).
	Delete(ctx context.Context, name string) error
	// Expand makes an object size bytes long (rounded up to Step), unless it is at
	// least that.
	Expand(ctx context.Context, name string, size int64) (Object, error)
	// Label replaces the object's labels.
	Label(ctx context.Context, name string, l Labels) (Object, error)
	// Activate makes an object's bytes available at a path, until Deactivate. Both
	// succeed if it is so already.
	Activate(ctx context.Context, name string) (Backing, error)
	Deactivate(ctx context.Context, name string) error
	// Usage is what there is room for.
	Usage(ctx context.Context) (Usage, error)
	// Close ends what the store keeps running. Activated objects stay so.
	Close() error
}

// Features are what a store can.
type Features struct {
	// Snapshots: it makes copies at once that share bytes with their source.
	Snapshots bool
	// AtomicSnapshots: also of an object that is being written to, as of one
	// moment. Otherwise writers must be held off by the caller meanwhile.
	AtomicSnapshots bool
	// Thin: objects take space as they are written to.
	Thin bool
	// Block: a Backing is a block device.
	Block bool
	// Step is what sizes are rounded up to; Min and Max bound them, bytes.
	Step, Min, Max int64
}

// Spec is an object to be made.
type Spec struct {
	Name string
	Size int64 // bytes; rounded up to Step
	// Source is the object it is a copy of, "" for none: then it is all zero. A
	// Size beyond the source's is reached by expanding the copy.
	Source string
	// ReadOnly objects are snapshots: they are not activated for writing.
	ReadOnly bool
	Labels   Labels
}

// Labels are what the agent wants to find again with an object. A store keeps
// them unread.
type Labels struct {
	Tenant   string // 1..63 bytes, as a backend name
	Name     string // as the object was asked for, any bytes, up to backend.MaxName
	Identity string // 32 hexadecimal digits
	// Source is the ID of what it is a copy or snapshot of; SourceSnapshot says
	// that this is a snapshot. Zero for none.
	Source         backend.ID
	SourceSnapshot bool
	Created        time.Time // in seconds
	Tunables       map[string]string
	Generation     int64
}

// Object is a volume or snapshot.
type Object struct {
	Name     string
	Size     int64 // bytes
	ReadOnly bool
	Labels   Labels
	// Content is backend.ContentBlank, Written or Unknown, from what the store
	// knows about space that is taken.
	Content backend.Content
	// Taken is the space it takes alone, bytes; -1 if that is not known.
	Taken int64
}

// Backing is where an object's bytes can be read and written.
type Backing struct {
	Path  string // absolute
	Block bool   // a block device
}

// Usage is the space of a pool, bytes.
type Usage struct {
	Total, Used int64 // physical
	// Promised is the sum of the sizes of all objects.
	Promised int64
	// Available is what may still be promised, MaxObject the largest object.
	Available, MaxObject int64
	// Metadata is how full the store's own tables are, 0..1; 0 if it has none.
	Metadata float64
	// Filling: above the high-water mark; Create and Expand are refused with
	// backend.ErrNoSpace. Full: writes fail, or wait.
	Filling, Full bool
}
