package memory

// Bounds (I6).
const (
	maxEvents   = 64      // that wait for one watcher
	defaultRoom = 1 << 50 // bytes of a pool for which Config says nothing
)
