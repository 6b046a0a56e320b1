package lvmthin

import (
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

const (
	// maxObject is the largest volume, bytes. LVM allows more; nobody tried.
	maxObject = 256 << 40
	// maxVolumes bounds the logical volumes of a report.
	maxVolumes = 100_000
	// maxOutput bounds what a command may print, bytes: a report has up to 3 KiB for
	// each volume.
	maxOutput = maxVolumes * 3 << 10
	// maxComplaint bounds what of a command's complaints gets into an error, bytes.
	maxComplaint = 1024
	// maxStderr bounds what is kept of them, bytes.
	maxStderr = 64 << 10
	// commandTimeout ends a command that hangs. It is generous: a command that is
	// ended half way may leave a device suspended, and its writers with it.
	commandTimeout = 5 * time.Minute
	// endGrace is how long such a command may take to end in order.
	endGrace = 30 * time.Second
	// maxLVName bounds a name of LVM, bytes.
	maxLVName = 127
	// maxPool bounds that of a pool: it is in the names of its volumes.
	maxPool = maxLVName - len(lvPrefix) - 1 - backend.MaxObject
	// maxTag bounds a tag, bytes (lvm(8), TAGS).
	maxTag = 1024
	// maxExtent bounds a volume group's extent size, bytes.
	maxExtent = 16 << 30
)

// defaults of the marks. Tables that are full are worse than data that is: the
// pool becomes read-only, and is repaired off line.
var defaults = store.Marks{Data: 0.85, Metadata: 0.7, Overcommit: 10}
