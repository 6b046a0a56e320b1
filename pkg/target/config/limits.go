package config

// Bounds of a configuration (I6).
const (
	// MaxFile is the longest configuration, bytes.
	MaxFile = 1 << 20

	maxTargets    = 256
	maxInitiators = 256 // of a target
	maxPortals    = 32  // of a target
	maxLUNs       = 1024
	maxLUN        = 1<<14 - 1
	maxNSID       = 1024
	maxANAGroup   = 128
	maxQueues     = 64
	maxQueueDepth = 1024
	maxGroup      = 1<<16 - 1
	maxDepth      = 4096
	maxSerial     = 64
	// maxSize is the largest store, bytes: 1 PiB; maxRAM that of one in memory.
	maxSize = 1 << 50
	maxRAM  = 1 << 40

	// DefaultPort is the iSCSI port (RFC 7143 13.9).
	DefaultPort = 3260
	// DefaultNVMePort is that of NVMe/TCP (IANA).
	DefaultNVMePort = 4420
)
