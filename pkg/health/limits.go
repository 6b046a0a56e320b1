package health

import "time"

// Bounds (I6).
const (
	maxPaths = 64   // of one status; the schema has the same
	maxCause = 256  // bytes
	maxNote  = 1000 // bytes of an Event's note (Kubernetes: 1024)
	maxNotes = 16   // of one status, each of another reason; the schema has the same

	// noteEvery is the least time between two Events of one reason about one volume.
	noteEvery = 20 * time.Second
	// maxPending Events wait for their turn; more are dropped, the status has them.
	maxPending = 1000

	// writeEvery is the least time between two writes of statuses of one node, and
	// writeAgain how long it waits after one that failed.
	writeEvery = time.Second
	writeAgain = 10 * time.Second

	// gatherFor is how long a change waits for others of the same cause; nodes write
	// a status per second.
	gatherFor = 5 * time.Second
	// holdFirst is how long nothing more is told of what was just told; it doubles
	// while things go on changing, up to holdMost, and begins anew after calmAfter
	// without a change. In any minute two Events at most are told of one subject,
	// and one more if it gets worse than it was.
	holdFirst = 20 * time.Second
	holdMost  = 10 * time.Minute
	calmAfter = 2 * time.Minute
	// severalVolumes of one node that lost the same portal are told of as one.
	severalVolumes = 4
	// newsFor is how old a change may be that a new controller still tells of.
	newsFor = 2 * time.Minute
	// eventEvery is the least time between two Events, eventBurst how many may come
	// at once.
	eventEvery = 100 * time.Millisecond
	eventBurst = 50
)
