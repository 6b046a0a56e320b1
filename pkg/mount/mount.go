// Package mount is what a node does with file systems: it finds out what is on a
// Device, makes a file system on one that is provably blank (I7), checks it,
// mounts, binds, unmounts and grows it, and reads its statistics.
//
// Whatever may wait for the device is done by a program of its own, which can be
// killed, or left behind when the device answers nothing: a thread of this
// process that hangs in the kernel could not be ended, and this process may be
// the one that the device waits for.
//
// Host.Stage, in stage.go, has the order of things.
package mount

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
