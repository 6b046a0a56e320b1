package agentpb

// Bounds of what goes over the wire (I6).
const (
	// MaxRequest is the largest request, bytes: one with a name, tunables and
	// secrets has less than 4 KiB.
	MaxRequest = 16 << 10
	// MaxReply is the largest reply, bytes: a page of backend.MaxEntries volumes has
	// less than 1 MiB.
	MaxReply = 8 << 20
	// MaxRequestID is the longest request identifier, bytes.
	MaxRequestID = 64

	maxErrorText = 2048 // bytes
)

// RequestID is the metadata key of a request's identifier.
const RequestID = "csi-mpath-request-id"
