package target

// Bounds of the target (I6); those that both protocols share are in serve.
const (
	// DefaultDepth is the command window of a session.
	DefaultDepth = 128
	maxDepth     = 4096
	// offerRecv, offerBurst and offerFirst are what we offer in a login, bytes.
	offerRecv  = 256 << 10
	offerBurst = 1 << 20
	offerFirst = 256 << 10

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

	// maxOutstandingR2T is the most R2Ts of one command that wait for their data.
	maxOutstandingR2T = 8
	// maxWaitingTMF bounds the task management functions of a session that wait
	// for jobs to be over; more are rejected.
	maxWaitingTMF = 64

	maxSessions   = 1024
	maxLUNs       = 1024
	maxLoginLegs  = 32
	maxLoginText  = 64 << 10
	maxTextAnswer = 256 << 10
	maxAttentions = 16 // pending unit attentions per session and unit
	maxImmediate  = 64 // immediate commands waiting at a time, per session

	// ramStripe is the span of one lock of a RAM store, bytes.
	ramStripe = 1 << 20
	ramLocks  = 64
	// hugePage is the size and alignment of what a RAM store asks huge pages for, bytes.
	hugePage = 2 << 20
)
