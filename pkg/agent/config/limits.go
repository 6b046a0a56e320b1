package config

// Bounds of a configuration (I6).
const (
	// MaxFile is the longest configuration, bytes.
	MaxFile = 256 << 10
	// DefaultPort is where agents listen.
	DefaultPort = 7443
	// DefaultState is where the journal is.
	DefaultState = "/var/lib/csi-mpath/agent"
	// DefaultAdmin is the socket for commands on the agent's machine.
	DefaultAdmin = "/run/csi-mpath-agent/admin.sock"

	metricsPort   = 7444
	iscsiPort     = 3260 // RFC 7143 13.9
	nvmePort      = 4420 // IANA
	maxPools      = 32
	maxTransports = 2
	maxDevices    = 64
	maxGroup      = 1<<16 - 1
	maxOvercommit = 100000 // percent
	maxLVMName    = 127    // bytes of a volume group and a volume together, and each
)
