package iscsi

import (
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/wire"
)

// Every bound of the initiator, in one place (I6).
const (
	// What we offer in a login.
	offerMaxRecv        = 256 << 10 // MaxRecvDataSegmentLength, bytes
	offerMaxBurst       = 1 << 20   // bytes
	offerFirstBurst     = 256 << 10 // bytes
	offerOutstandingR2T = wire.MaxAsked
	offerTime2Wait      = 2 // seconds
	offerTime2Retain    = 0 // seconds: ErrorRecoveryLevel 0 keeps no tasks

	// maxLoginLegs ends a login that goes on for ever.
	maxLoginLegs = 32
	// maxLoginText is the most key bytes of one leg joined by the C bit.
	maxLoginText = 64 << 10
	// maxTextBytes and maxTextLegs bound one SendTargets answer.
	maxTextBytes = 4 << 20
	maxTextLegs  = 4096
	// maxTargets and maxPortals bound what discovery returns.
	maxTargets = 4096
	maxPortals = 64 // of one target

	// defaultDepth and maxDepth bound Config.QueueDepth, commands.
	defaultDepth = 128
	maxDepth     = 4096
	// controlTags are kept for recovery and control commands.
	controlTags = 32
	// maxLUNs is the most logical units of one session.
	maxLUNs = 1024

	// maxOtherData is the largest data segment of anything but Data-In and
	// text, bytes: sense, a rejected header, ping data.
	maxOtherData = 64 << 10

	// maxPings is the most pings of the target waiting for our answer.
	maxPings = 64
	// maxEmptyDataIn is the most Data-In in a row without data or status.
	maxEmptyDataIn = 4
	// maxAborts is the most ABORT TASK outstanding at once.
	maxAborts = 8

	// idlePing is how long a session may be silent while nothing is outstanding,
	// at most; a dead idle path is noticed PathTimeout later. 2,000 idle sessions
	// send 230 pings a second then.
	idlePing = 10 * time.Second

	defaultConnectTimeout = 5 * time.Second
	defaultLoginTimeout   = 10 * time.Second
	defaultPathTimeout    = 5 * time.Second
	defaultCommandTimeout = 30 * time.Second
	// abortTimeout is how long an ABORT TASK may stay unanswered.
	abortTimeout = 10 * time.Second
	// logoutTimeout bounds a logout the target asked for.
	logoutTimeout = 2 * time.Second

	// Identify.
	maxUnitAttentions = 16 // eaten per command
	// maxIdentifications is how often one begins again because the unit changed.
	maxIdentifications = 4
	maxVPD             = 16 << 10
	maxTPG             = 64 << 10
	identifyRetries    = 8 // on busy or not ready
	identifyBackoff    = 100 * time.Millisecond
)
