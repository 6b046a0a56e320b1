package merge

// Every limit of this package (I6).
const (
	// Streams is the most contiguous streams a Plug follows at once.
	Streams = 16
	// lookAt is how many streams are looked at for one to give up.
	lookAt = 4
	// MaxJoined is the most requests of one unit.
	MaxJoined = 64
	// MaxDeadline bounds a merge deadline, ns (100 ms, as the kernel's).
	MaxDeadline = 100_000_000
)
