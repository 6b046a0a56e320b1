package backend

// Bounds of names (I6).
const (
	MaxName   = 128 // bytes of the name that a creation is asked with (CSI)
	MaxNode   = 253 // bytes of a node's name
	MaxPool   = 32  // bytes of a pool's name
	MaxObject = 63  // bytes of an object's name
	// MaxInitiator bounds a node's base name: an epoch must fit behind it, where
	// 223 bytes are allowed (RFC 7143 4.2.7.2, NVMe base specification 4.7).
	MaxInitiator = 223 - 33
	// MaxSecret bounds secrets and their user names, bytes.
	MaxSecret = 255
	// MaxEntries bounds a page that asks for no bound, or a larger one.
	MaxEntries = 500
	// MaxTunables bounds the tunables of a volume: their number, and the bytes of
	// all keys and values.
	MaxTunables      = 32
	MaxTunablesBytes = 512
	maxToken         = MaxPool + MaxObject + MaxNode + 16 // bytes of a page token
)
