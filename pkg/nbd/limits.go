package nbd

import (
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nbd/proto"
)

// The limits of this package; those of the wire are in proto/limits.go.
const (
	// DefaultDepth is how many requests one connection may have outstanding.
	DefaultDepth = 256
	// MaxDepth bounds Config.Depth.
	MaxDepth = 4096
	// DefaultArena is the payload memory of one connection, bytes. Mapped, not
	// reserved: what is never used costs nothing.
	DefaultArena = 64 << 20
	// MinArena holds one largest request: any request is served by waiting.
	MinArena = proto.MaxPayload
	// MaxConns is how many connections one server holds; more are closed at once.
	MaxConns = 1024
	// HandshakeTimeout is how long a client may take to choose its export.
	HandshakeTimeout = 30 * time.Second

	// slotChunk is how many requests a connection makes room for at a time.
	slotChunk = 32
	// largeWrite is the payload, bytes, from which the next write's payload is
	// received straight into its own buffer: below, one more system call costs
	// more than the copy.
	largeWrite = 16 << 10
	// maxBatch is how many replies one send carries: two buffers each.
	maxBatch = 512
	// maxSendRounds is how many batches a goroutine that came to deliver its
	// own answers sends for others before it leaves the rest to the writer.
	maxSendRounds = 8
	// sendBuffer is asked of the kernel for the socket, bytes; it may give less.
	sendBuffer = 1 << 20
	// hangupCheck is how often a reader that is held back by pressure looks
	// whether its client is still there.
	hangupCheck = 100 * time.Millisecond
)
