package configfs

// Bounds (I6).
const (
	maxName  = 255  // bytes of a directory's name
	maxValue = 4095 // bytes of an attribute: one page, and configfs wants room for a zero
	// maxPending bounds the calls that the kernel keeps at a time: each holds a
	// thread.
	maxPending = 256
)
