package pki

import "time"

const (
	maxFile  = 256 << 10 // bytes of a certificate or key file
	maxNames = 64        // names and addresses of a server

	// How long certificates of a first trial are valid. Whoever wants shorter ones
	// has tools for it; files are read again when they change.
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 2 * 365 * 24 * time.Hour
	// clockSkew is how much a client's clock may be behind.
	clockSkew = time.Hour
)
