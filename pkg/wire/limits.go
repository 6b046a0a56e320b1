package wire

import "time"

// Every bound of the package, in one place (I6).
const (
	// tagsPerHome is the least number of tags that a home of the tag set has.
	tagsPerHome = 32
	// MaxAsked is the most transfers a peer may have asked for at once for one command.
	MaxAsked = 4

	// bulkPeek is how much is received ahead when a small PDU came between large
	// payloads, bytes: little, so that not much of the next one is copied.
	bulkPeek = 4 << 10
	// bulkMin: payloads of at least so many bytes are bulk: one more receive
	// costs less than copying them.
	bulkMin = 32 << 10
	// maxHeld is how many receives of large payload end as one batch.
	maxHeld = 8

	// sendArena holds headers and copied payload of one batch, bytes.
	sendArena = 256 << 10
	// CopyLimit: payload up to it is copied into the arena, more goes by reference, bytes.
	CopyLimit = 8 << 10
	// batchBytes ends a batch, bytes.
	batchBytes = 1 << 20
	// batchIovecs ends a batch.
	batchIovecs = 512
	// maxRounds is how many batches a caller of Kick sends for others before
	// the writer goroutine takes over.
	maxRounds = 8
	// maxCalls is how many Barriers wait for the reader at once before they wait
	// for each other.
	maxCalls = 16

	// TickInterval drives timeouts; a black hole is seen within the path timeout
	// + 2 ticks.
	TickInterval = 50 * time.Millisecond

	// latencyWeight: each sample moves the average by 1/8.
	latencyWeight = 8
)
