// Package mount is what a node does with file systems: it finds out what is on a
// device, makes a file system on one that is provably blank (I7), checks it,
// mounts, binds, unmounts and grows it, and reads its statistics.
//
// Whatever may wait for the device is done by a program of its own, which can be
// killed, or left behind when the device answers nothing: a thread of this
// process that hangs in the kernel could not be ended, and this process may be
// the one that the device waits for.
package mount

import "context"

// Host is the file systems of one node. Its methods may be called from any
// goroutine, return when ctx ends, also while the device hangs, and are
// idempotent. Errors wrap the ones in errors.go. New makes the real one,
// mounttest has a twin in memory.
type Host interface {
	// Stage brings the device's file system to Request.Target: probed, made if
	// that is allowed, checked, mounted, and grown to the device.
	Stage(ctx context.Context, r Request) (Report, error)
	// Unmount removes every mount at a path, lazily where the file system answers
	// nothing, and then the path itself. A path that is not there is done.
	Unmount(ctx context.Context, target string) error
	// Bind makes the file system mounted at source appear at target.
	Bind(ctx context.Context, source, target string, readOnly bool) error
	// BindDevice makes a device's node appear at target, a file.
	BindDevice(ctx context.Context, device, target string) error
	// Find is the topmost mount at a path, nil if it is none. It touches neither
	// the path nor a device.
	Find(target string) (*Point, error)
	// Mounts are all mounts of a device's file system.
	Mounts(device string) ([]Point, error)
	// Grow makes the file system mounted at target as large as its device.
	Grow(ctx context.Context, target string) (Growth, error)
	// Stats are the numbers of the file system mounted at target. One that hangs
	// is ErrHangs, at once where an earlier call hangs still.
	Stats(ctx context.Context, target string) (Stats, error)
	// DeviceSize is a block device's size in bytes, as the kernel knows it now.
	DeviceSize(device string) (uint64, error)
}

// The file systems.
const (
	Ext4 = "ext4"
	XFS  = "xfs"
)

// Request is what Stage is asked for.
type Request struct {
	// Volume names it in errors, and a format that was begun on it as its own: the
	// same on every node and at every time. At most MaxVolume bytes.
	Volume string
	Device string // "/dev/nbd3"
	Target string // an absolute path; made where it is not there
	// FSType is Ext4 or XFS.
	FSType string
	// MkfsOptions are arguments of mkfs, MountOptions what mount has after -o.
	MkfsOptions  []string
	MountOptions []string
	// ReadOnly: nothing is made, checked or grown, and no journal replayed.
	ReadOnly bool
	// Blank: as far as the caller knows, nobody ever wrote to the volume, and it is
	// no clone. Without it nothing is formatted (I7), unless a format of ours on
	// this volume was cut short.
	Blank bool
}

// Report is what Stage did.
type Report struct {
	Formatted bool
	// Resumed: the format had been begun before, and was cut short.
	Resumed bool
	// Repaired: the check found errors, and corrected all of them. Messages say which.
	Repaired bool
	Growth   Growth
	// Mounted: it was mounted there already; nothing was done.
	Mounted  bool
	Messages []string
}

// Growth is what Grow did; sizes in bytes. Equal ones mean nothing.
type Growth struct{ From, To uint64 }

// Stats are the numbers of a file system: bytes and inodes.
type Stats struct {
	Bytes, BytesUsed, BytesFree    uint64
	Inodes, InodesUsed, InodesFree uint64
}

// Point is one mount.
type Point struct {
	Path   string
	Device string // "8:1", its number
	Root   string // what of the file system is mounted
	FSType string
	// Source as mount was told it; a name, no proof of anything.
	Source   string
	ReadOnly bool
}
