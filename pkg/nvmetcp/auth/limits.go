package auth

// Bounds of the exchange, bytes where nothing else is said.
const (
	// MaxMessage is the longest message taken, and the buffer to give to
	// Authentication Receive: a challenge with ffdhe8192 has 1104.
	MaxMessage = 4096
	// MaxNQN is the longest NVMe Qualified Name (NVMe Base 2.1 section 4.7).
	MaxNQN = 223

	// maxSecretText is the longest DHHC-1 text looked at.
	maxSecretText = 256
	// maxIDs is how many identifiers each list of a descriptor has room for
	// (NVMe Base 2.1 section 8.3.4.5.2).
	maxIDs = 30
	// maxDescriptors is how many protocol descriptors of one AUTH_Negotiate are
	// looked at: there is one protocol today.
	maxDescriptors = 8
	// exponentBits is the length of our ephemeral Diffie-Hellman exponents: more
	// than twice the strength of ffdhe8192 (RFC 7919 appendix A.5 asks for 400),
	// and sixteen times cheaper than full length.
	exponentBits = 512
	// maxStarts is how often a host that has not proven itself may begin: each
	// time costs the controller an exponentiation.
	maxStarts = 8
)
