package subsystem

import "time"

// Bounds of the target over NVMe/TCP (I6); those that both protocols share are
// in serve.
const (
	// DefaultDepth is the size of an I/O queue, entries.
	DefaultDepth = 128
	maxDepth     = 1024
	// DefaultQueues is how many I/O queues a controller grants.
	DefaultQueues = 16
	maxQueues     = 64
	// adminDepth is the most entries of an admin queue.
	adminDepth = 128

	// DefaultInCapsule is what an I/O command may bring in its capsule, bytes.
	DefaultInCapsule = 64 << 10
	// MaxInCapsule keeps a capsule shorter than a receive buffer.
	MaxInCapsule = 64 << 10
	// NoInCapsule is Config.InCapsule for none.
	NoInCapsule = -1
	// defaultData is what one data PDU has at most, bytes.
	defaultData = 256 << 10
	// maxTransferShift is MDTS: 4 MiB, serve.MaxTransfer.
	maxTransferShift = 10
	// maxLogRead is the most of a log that one command reads, bytes.
	maxLogRead = 4 << 20
	// maxZero is the most of one deallocation, in all, bytes.
	maxZero = 1 << 30

	// MaxNamespace is the highest NSID (NN, MNAN), MaxANAGroup the highest ANA
	// group (ANAGRPMAX, NANAGRPID).
	MaxNamespace = 1024
	MaxANAGroup  = 128
	// maxControllers is the most of one subsystem at a time.
	maxControllers = 1024
	maxController  = 0xFFEF // the highest CNTLID
	// maxAsync is how many Asynchronous Event Requests wait at a time (AERL + 1).
	maxAsync = 4
	// maxErrors is the length of a controller's error log (ELPE + 1), entries.
	maxErrors = 64
	// maxNotices bounds the reservation notifications that wait for a controller.
	maxNotices = 255
	// maxRecords is the most records of a discovery log.
	maxRecords = 4096
	// maxKeepAlive is the longest KATO, ms; keepAliveStep is KAS.
	maxKeepAlive  = 24 * 3600 * 1000
	keepAliveStep = 100 * time.Millisecond

	defaultTransition = 10 * time.Second
	defaultRetryDelay = 100 * time.Millisecond
	maxRetryDelay     = 6553 * time.Second
	maxQuiesce        = 65535 * time.Millisecond
)
