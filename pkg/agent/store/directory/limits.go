package directory

import "github.com/csi-mpath/csi-mpath/pkg/agent/store"

const (
	// step is what sizes are rounded up to and the smallest one, bytes: whole
	// blocks on every file system, whole extents where there are any.
	step = 1 << 20
	// maxObject is ext4's largest file with blocks of 4 KiB, less a step.
	maxObject = 16<<40 - step
	// maxRecord bounds a record that is read, bytes: labels are at most some KiB.
	maxRecord = 64 << 10
	// maxObjects bounds the objects of a directory.
	maxObjects = 100_000
)

// defaults of the marks.
var defaults = store.Marks{Data: 0.9, Metadata: 1, Overcommit: 10}
