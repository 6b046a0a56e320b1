package serve

import "time"

// Bounds of what serves (I6).
const (
	// RecvBuffer is one connection's receive buffer, bytes; PDUs other than
	// data must fit in it.
	RecvBuffer = 128 << 10
	// LandMin is the payload, bytes, from which the rest of a segment is
	// received straight into its place.
	LandMin = 4096
	// CopyMax is the longest read, bytes, that is copied behind its header;
	// longer ones are sent from the store's memory.
	CopyMax = 2048
	// outHigh stops the reading of requests while so many bytes of answers wait.
	outHigh = 4 << 20

	// MaxTransfer is the longest read or write, bytes.
	MaxTransfer = 4 << 20
	// maxBuffered bounds the data held for all sessions, bytes; beyond it
	// commands are told that the target is busy.
	maxBuffered = 512 << 20
	// maxIdleBuffers bounds the buffers kept for reuse, bytes.
	maxIdleBuffers = 64 << 20

	// MaxUnitJobs bounds the jobs of one unit that run at a time beside the
	// machine, so that a slow disk does not take the place of all others;
	// MaxJobs bounds those of all units, each of which may hold a thread.
	MaxUnitJobs = 32
	MaxJobs     = 512

	// MaxPortals is the most portals of one machine.
	MaxPortals   = 256
	maxConns     = 2048
	maxTargets   = 16384 // of a Hub
	maxGreetings = 1024  // connections of a Door that have not said yet for whom they are
	maxRules     = 1024
	maxLate      = 4096

	// acceptPause follows a failure to accept: out of file descriptors, most likely.
	acceptPause = 50 * time.Millisecond
	// LoginTimeout ends a connection that has not logged in.
	LoginTimeout = 15 * time.Second
)
