package memory

import "github.com/csi-mpath/csi-mpath/pkg/agent/store"

const (
	// step is what sizes are rounded up to and the smallest one, bytes.
	step = 1 << 20
	// maxObject is the largest object, bytes.
	maxObject = 1 << 40
)

// marks are when it is filling.
var marks = store.Marks{Data: 0.9, Metadata: 1, Overcommit: 1}
