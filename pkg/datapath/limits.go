package datapath

import (
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/merge"
)

// Every limit of this package (I6).
const (
	// MaxPaths is the most paths of one device.
	MaxPaths = 32
	// MaxLanes is the most lanes (client connections) of one device at once.
	MaxLanes = 64
	// MaxDepth is the most requests one lane may have outstanding.
	MaxDepth = 1024

	// slotChunk is how many slots of a lane are made at a time: a power of two.
	slotChunk = 32

	// maxWave is the most parts of one request in flight at once; a larger
	// request goes in several waves.
	maxWave = 64
	// maxTransfer caps one read or write command when the path names no limit, bytes.
	maxTransfer = 1 << 20
	// maxTrim caps one trim or write-zeroes command, bytes (DESIGN 4.3).
	maxTrim = 1 << 30

	// mergeRequest is the largest request that is merged, bytes, and mergeUnit
	// the largest unit, if the paths' limit is not smaller.
	mergeRequest = 64 << 10
	mergeUnit    = 256 << 10
	// mergeShare is the least part of a unit that is spread over several paths, bytes.
	mergeShare = 16 << 10
	// MaxMergeDeadline bounds a merge deadline.
	MaxMergeDeadline = merge.MaxDeadline * time.Nanosecond
	// tunePeriod is the window of the merge tuner.
	tunePeriod = 50 * time.Millisecond

	// sameRetries bounds immediate retries of one request after unit attentions
	// and aborted commands; then they are delayed.
	sameRetries = 16
	// busyDelayMin and busyDelayMax bound the back-off after BUSY, TASK SET
	// FULL and "becoming ready".
	busyDelayMin = 10 * time.Millisecond
	busyDelayMax = time.Second

	// backoffMin and backoffMax bound the pause between two attempts to bring a
	// path back; the pause is drawn at random below the current bound.
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
	// backoffForgiven: a path that lived this long starts again at backoffMin.
	backoffForgiven = time.Second
	// quarantineMin is the least pause after an identity mismatch.
	quarantineMin = 2 * time.Second

	// connectTimeout bounds one attempt to bring up a path, identification included.
	connectTimeout = 15 * time.Second
	// refreshTimeout bounds one re-reading of a live path's identity, size and state.
	refreshTimeout = 10 * time.Second
	// refreshPeriod is how often a quiet path is re-read (DESIGN 6).
	refreshPeriod = 60 * time.Second
	// refreshGap is the least pause between two refreshes of one path.
	refreshGap = 100 * time.Millisecond
	// transitionPeriod is how often a path in ALUA/ANA transition is re-read.
	transitionPeriod = time.Second
	// provePeriod is the pause between attempts to prove a fence elsewhere.
	provePeriod = time.Second
	// lookEvery is how many commands a busy lane sends between two looks at the
	// loads of the others.
	lookEvery = 16
	// roomPoll is how often a lane looks for room that other volumes hold.
	roomPoll = 2 * time.Millisecond
	// drainPoll is how often a drain looks whether it is done.
	drainPoll = 5 * time.Millisecond
	// closeGrace bounds the wait for runners that give the last answers of a
	// device that is gone: they wait for nothing.
	closeGrace = time.Second

	// judgePeriod is how often the paths are compared while there is traffic.
	judgePeriod = 100 * time.Millisecond
	// judgeRest: after so many looks without an answer the judge rests.
	judgeRest = 10
	// A path is marginal when badLooks looks in a row its cost was marginalRatio
	// times that of the best other, and its answers took marginalFloor or more.
	marginalRatio = 10.0
	marginalFloor = 2 * time.Millisecond
	badLooks      = 3
	// enoughAnswers make a window, or as many as came in half of costFresh; a
	// cost older than costFresh says nothing.
	enoughAnswers = 4
	costFresh     = time.Second
	// queueFloor is added to every queue, bytes: what a command costs besides
	// its data.
	queueFloor = 16 << 10
	// A marginal path is probed every probeEvery. It recovers after goodProbes
	// probes in a row within probeRatio times the time of a path in order; one
	// that relapses within relapseWithin needs twice as many, up to maxGoodProbes.
	probeEvery    = time.Second
	probeTimeout  = 5 * time.Second
	goodProbes    = 5
	maxGoodProbes = 60
	probeRatio    = 3
	relapseWithin = time.Minute
)
