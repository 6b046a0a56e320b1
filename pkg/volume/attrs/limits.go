package attrs

// Bounds of what travels with a volume (I6).
const (
	maxPortals   = 32 // paths of a volume
	maxLUN       = 1<<24 - 1
	maxNSID      = 0xfffffffe // NVMe Base 3.2.1
	maxSize      = 1 << 60    // bytes of a volume
	maxName      = 223        // bytes of an iSCSI name (RFC 7143 4.2.7.1) or an NQN
	maxWWID      = 256        // bytes
	maxEpoch     = 64         // bytes
	maxKeys      = 64         // of one map
	maxBytes     = 16 << 10   // of all keys and values of one map
	maxMkfs      = 16         // options for mkfs
	maxMkfsBytes = 256        // bytes of all of them
	maxID        = 128        // bytes of a volume's ID (CSI)
	// MaxBackend bounds a backend's name, bytes.
	MaxBackend = 32
)
