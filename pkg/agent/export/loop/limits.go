package loop

// Bounds (I6).
const (
	sectorSize = 512 // bytes: what all exporters have
	attempts   = 16  // to get a free device, against others that want one, too
)
