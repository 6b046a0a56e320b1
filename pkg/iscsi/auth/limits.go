package auth

// Bounds of CHAP as spoken here.
const (
	// ChallengeLen is the length of the challenges we make, bytes.
	ChallengeLen = 24
	// MinSecret is the shortest secret CHAP is used with, bytes: 96 bits
	// (RFC 7143 9.2.1).
	MinSecret = 12
	// MaxSecret is the longest secret, bytes.
	MaxSecret = 255
	// MaxUser is the longest CHAP_N taken, bytes.
	MaxUser = 255
	// algMD5 is CHAP_A for MD5 (RFC 7143 12.1.3).
	algMD5 = "5"
)
