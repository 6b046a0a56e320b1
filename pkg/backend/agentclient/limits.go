package agentclient

import "time"

// Bounds of a client (I6).
const (
	// pingAfter is how long a connection may be silent until the agent is asked for
	// a sign of life, which it has pingTimeout for.
	pingAfter   = 20 * time.Second
	pingTimeout = 10 * time.Second
	// connectTimeout bounds one attempt, handshake included.
	connectTimeout = 10 * time.Second
	// Attempts are retryFirst to retryMost apart.
	retryFirst = 200 * time.Millisecond
	retryMost  = 5 * time.Second
	// maxHeaders bounds the metadata of an answer, bytes.
	maxHeaders = 64 << 10
)
