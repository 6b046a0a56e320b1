package nvmetcp

// Bounds of discovery.
const (
	// discoveryChunk is how much of a discovery log is read at once, bytes: four
	// records. Every controller can transfer so much.
	discoveryChunk = 4096
	// maxLogReads is how often a discovery log that keeps changing is read.
	maxLogReads = 8
	// maxDiscoveryControllers is how many discovery controllers one discovery
	// asks; maxReferralHops how far from the first one they may be.
	maxDiscoveryControllers = 64
	maxReferralHops         = 8
	// maxDiscovered and maxDiscoveredPortals bound what discovery returns, and
	// maxSkipped what it says about the rest.
	maxDiscovered        = 4096
	maxDiscoveredPortals = 64 // of one subsystem
	maxSkipped           = 256
	// maxShown is how much of a peer's text an error quotes, bytes.
	maxShown = 80
)
