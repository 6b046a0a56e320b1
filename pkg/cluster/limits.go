package cluster

import "time"

// Bounds (I6).
const (
	// staleAfter is how long a copy is believed after the API server stopped
	// answering: a restart of it takes less.
	staleAfter = time.Minute
	// requestsPerSecond, and burst, of ours to the API server; watches count once.
	requestsPerSecond = 20
	burst             = 40
	// pageSize is how many objects one answer to a list has.
	pageSize = 500
	// answerWithin is how long one question may take, askAgainMost the longest pause
	// before it is asked again.
	answerWithin = 10 * time.Second
	askAgainMost = 30 * time.Second
	// taintsEvery is how often nodes are looked at for taints that may go.
	taintsEvery = 10 * time.Second
)
