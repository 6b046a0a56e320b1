package target

import "time"

// Bounds of the target (I6).
const (
	// recvBuffer is one connection's receive buffer, bytes; PDUs other than
	// data must fit in it.
	recvBuffer = 128 << 10
	// landMin is the payload, bytes, from which the rest of a segment is
	// received straight into its place.
	landMin = 4096
	// copyMax is the longest read, bytes, that is copied behind its header;
	// longer ones are sent from the store's memory.
	copyMax = 2048
	// outHigh stops the reading of requests while so many bytes of answers wait.
	outHigh = 4 << 20

	// DefaultDepth is the command window of a session.
	DefaultDepth = 128
	maxDepth     = 4096
	// offerRecv, offerBurst and offerFirst are what we offer in a login, bytes.
	offerRecv  = 256 << 10
	offerBurst = 1 << 20
	offerFirst = 256 << 10

	// maxTransfer is the longest READ or WRITE, bytes (VPD B0h).
	maxTransfer = 4 << 20
	// maxBuffered bounds the write data held for all sessions, bytes; beyond it
	// commands get TASK SET FULL.
	maxBuffered = 512 << 20
	// maxIdleBuffers bounds the buffers kept for reuse, bytes.
	maxIdleBuffers = 64 << 20
	// maxZero is the longest WRITE SAME, bytes; maxUnmapBlocks the most of one UNMAP.
	maxZero        = 1 << 30
	maxUnmapBlocks = 1 << 20
	// maxCompareWrite is the most blocks of one COMPARE AND WRITE, up to 255.
	maxCompareWrite = 255
	// comparePiece is what is read at once to compare it, bytes: whole blocks.
	comparePiece = 256 << 10
	// maxStatusExtents is the most descriptors GET LBA STATUS answers with.
	maxStatusExtents = 256
	// maxUnmapExtents is the most descriptors of one UNMAP.
	maxUnmapExtents = 256
	// maxParam is the longest parameter list taken, bytes.
	maxParam = 64 << 10

	// maxUnitJobs bounds the jobs of one unit that run at a time beside the
	// machine, so that a slow disk does not take the place of all others;
	// maxJobs bounds those of all units, each of which may hold a thread.
	maxUnitJobs = 32
	maxJobs     = 512
	// maxOutstandingR2T is the most R2Ts of one command that wait for their data.
	maxOutstandingR2T = 8
	// maxWaitingTMF bounds the task management functions of a session that wait
	// for jobs to be over; more are rejected.
	maxWaitingTMF = 64

	maxSessions   = 1024
	maxConns      = 2048
	maxLUNs       = 1024
	maxPortals    = 256
	maxTargets    = 1024 // of a Hub
	maxGreetings  = 256  // connections of a Door whose first PDU has not come
	maxRules      = 1024
	maxLoginLegs  = 32
	maxLoginText  = 64 << 10
	maxTextAnswer = 256 << 10
	maxAttentions = 16 // pending unit attentions per session and unit
	maxImmediate  = 64 // immediate commands waiting at a time, per session
	maxLate       = 4096

	// acceptPause follows a failure to accept: out of file descriptors, most likely.
	acceptPause = 50 * time.Millisecond
	// loginTimeout ends a connection that has not logged in.
	loginTimeout = 15 * time.Second
	// ramStripe is the span of one lock of a RAM store, bytes.
	ramStripe = 1 << 20
	ramLocks  = 64
	// hugePage is the size and alignment of what a RAM store asks huge pages for, bytes.
	hugePage = 2 << 20
)
