package sim

import "time"

// Every constant of this package.
const (
	lunNumber  = 1
	targetName = "iqn.2026-01.sim:array"
	hostName   = "iqn.2026-01.sim:host"

	subsystemName = "nqn.2026-01.sim:array"
	hostNQN       = "nqn.2026-01.sim:host"
	// keptBack is what a host keeps of an I/O queue for commands of its own.
	keptBack = 4
	// keepAliveStep is what targets count keep alive in; minKeepAlive the least one.
	keepAliveStep = 100 * time.Millisecond
	minKeepAlive  = 500 * time.Millisecond

	// wireMax is how long bytes may be under way after their sender's reset. Far
	// below any fence timeout: a network that keeps packets longer than that is
	// outside of what a fence by time promises.
	wireMax = 300 * time.Millisecond
	// flushTime bounds one access to the disk.
	flushTime = 5 * time.Millisecond

	// maxBuffer is the largest room of a connection's two sockets, bytes.
	maxBuffer = 1 << 20
	// longPiece is what is mostly payload, bytes.
	longPiece = 1 << 10
	// unprotected is how much of a connection has no digest, bytes.
	unprotected = 128
	// hotBlocks is where most requests go, so that they overlap.
	hotBlocks = 48
	// slots is the depth of a client's lane.
	slots = 32

	// openTimeout bounds the first opening, which has no faults.
	openTimeout = time.Minute
	// settleTime: so long after the last fault everything is as if there had
	// been none: windows are wide open again, and idle paths were looked at too.
	settleTime = 70 * time.Second
	// calmRounds is how often the clients ask once more when all is settled, and
	// wait for each other: a lost wake-up shows that any fault, or any other
	// request, would have cured. hasteRounds is that of hasty scripts.
	calmRounds  = 20
	hasteRounds = 100
	// recoverTime is how long a path may be kept from use after that for having
	// been slow.
	recoverTime = 2 * time.Minute
	// fillTimes is how often the windows are filled at most.
	fillTimes = 5
	// calmAnswer bounds an answer when no fault was near.
	calmAnswer = 5 * time.Second
	// patience is what the product's own bounds may add to the timeouts of a
	// script: connectTimeout, the abort of a command, and the longest back-off.
	patience = 35 * time.Second

	// maxBroken is how many violations a run reports.
	maxBroken = 10
	// maxSteps bounds a script, maxTime the time of one step.
	maxSteps = 10_000
	maxTime  = time.Hour
	// maxLine bounds a line of a script, bytes.
	maxLine = 1 << 10
	// runLimit is the real time one run may take before its worker is given up.
	runLimit = 5 * time.Minute
	// progressEvery is how often a long run reports.
	progressEvery = 5 * time.Second
	// shrinkRuns bounds the runs that look for a smaller script, and tries is
	// how often each candidate is run: a failure that needs luck shows sometimes.
	shrinkRuns = 400
	tries      = 3
)
