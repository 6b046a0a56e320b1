package proto

// The limits of this package. Nothing a peer sends makes us hold more than
// MaxOption bytes during the handshake.
const (
	// MaxName is the longest export name, bytes (NBD proto.md, "Values": strings
	// are at most 4096 bytes).
	MaxName = 4096
	// MaxOption is the longest option payload that is looked at, bytes: a name,
	// its length, and more information requests than exist.
	MaxOption = 8192
	// MaxSkippedOption is the longest option payload that is read past, to stay
	// in step with a client that is refused. A longer one ends the connection.
	MaxSkippedOption = 1 << 20
	// MaxOptions is how many options one handshake may hold: INFO for each of
	// many thousand exports is legal, an endless stream is not.
	MaxOptions = 1 << 16
	// MaxPayload is the largest read or write, bytes (NBD proto.md, "Size
	// constraints": the portable 2^25).
	MaxPayload = 1 << 25
	// MaxSkippedPayload is the longest payload of a refused write that is read
	// past, bytes. A longer one ends the connection.
	MaxSkippedPayload = 2 * MaxPayload
)
