package driver

import "time"

// Bounds (I6).
const (
	maxConfig     = 1 << 20 // bytes of the configuration
	maxBackends   = 64
	maxNodeNames  = 5000 // nodes whose initiators are named in the configuration
	maxTopology   = 16   // segments of one backend
	maxCluster    = 128  // bytes of the cluster's name
	maxAddress    = 300  // bytes of an address, or of a server's name
	maxLabel      = 63   // bytes of a label's value (Kubernetes)
	maxEntries    = 500  // of one answer
	maxMessage    = 4 << 20
	maxStreams    = 256              // calls at a time on one connection
	callTimeout   = 2 * time.Minute  // of a call that comes without a deadline
	stopTimeout   = 10 * time.Second // for calls that are running at the end
	reloadEvery   = 10 * time.Second
	defaultSize   = 1 << 30 // bytes of a volume for which no size is asked
	maxLoggedText = 2048    // bytes of a request in the log
)
