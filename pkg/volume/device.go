package volume

import (
	"context"

	"github.com/csi-mpath/csi-mpath/pkg/secret"
	"github.com/csi-mpath/csi-mpath/pkg/tunable"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// DeviceOpener makes volumes block devices of this node.
type DeviceOpener interface {
	// Open reaches the volume through all its portals at once, succeeds with
	// minPaths of them, checks that they show the volume (I1), and attaches it;
	// the other portals join later. An Open that fails leaves nothing. Errors wrap
	// ErrUnavailable, ErrDenied, ErrIdentity, ErrInvalid or ErrUnsupported.
	Open(ctx context.Context, c DeviceConfig) (Device, error)
	// Discard removes the block device that a process before left of this volume,
	// and all that is remembered of it; what was not written is lost. There may be
	// none. One that is mounted fails all I/O from then on, and is ErrState.
	Discard(ctx context.Context, volume string) error
}

// DeviceConfig is a volume to open.
type DeviceConfig struct {
	Volume   string // its ID: names it in events, errors and files
	Attached attrs.Attachment
	Settings tunable.Settings
	ReadOnly bool // at the device: no write leaves this node
	// Exclusive: no other node has it at the same time, so that a reservation may
	// be taken.
	Exclusive bool
	Secrets   Secrets
	// Again: it was served before, by a process that is gone, and its users wait.
	// Open waits for a path as long as ctx lasts, and takes the block device over
	// (I8).
	Again bool
}

// Secrets are what the caller proves itself with, by the keys it has them under.
type Secrets map[string]secret.Text

// Device is one open volume. Its methods may be called from any goroutine.
type Device interface {
	// Path is the device node.
	Path() string
	// Status does not wait for anything.
	Status() Status
	// Flush writes what the block device holds back, to stable storage.
	Flush(ctx context.Context) error
	// Settle waits until everything is answered, and every write in doubt is
	// fenced (I3). Its error says what is open, and why.
	Settle(ctx context.Context) error
	// Rescan asks every path for the volume's size, and returns it; the block device
	// has it soon after. Paths that disagree are ErrUnavailable.
	Rescan(ctx context.Context) (size int64, err error)
	// Tune changes what can be changed while it works.
	Tune(s tunable.Settings) error
	// Renew changes the secrets of logins to come.
	Renew(s Secrets) error
	// Fail ends all I/O, held and to come, with errors: what is not on a wire is
	// never sent (I5).
	Fail(cause error)
	// Detach removes the block device; ErrState while somebody uses it.
	Detach(ctx context.Context) error
	// Close ends the sessions, and forgets the volume. It comes after Detach.
	Close(ctx context.Context) error
	// Leave ends this process's part, and leaves the block device for the next.
	Leave(ctx context.Context) error
}

// Status is a device at one moment.
type Status struct {
	Size   int64 // bytes
	Usable int   // paths that take I/O now
	Paths  []PathStatus
	Held   int64 // requests without an answer
	// InDoubt are writes that wait for a fence (I3).
	InDoubt int64
	// Lost is why the volume is another node's by now, so that its I/O fails for
	// good; empty: it is not.
	Lost string
}

// PathStatus is one path.
type PathStatus struct {
	Portal string
	Up     bool
	State  string
	Cause  string // of the last loss
}
