package device

import "time"

// Every limit and default of this package.
const (
	// DefaultPathTimeout and the others are DESIGN's StorageClass defaults.
	DefaultPathTimeout    = 5 * time.Second
	DefaultCommandTimeout = 30 * time.Second
	DefaultFenceTimeout   = 15 * time.Second
	DefaultQueueDepth     = 128
	DefaultKeepAlive      = 5 * time.Second

	// minKeepAlive and maxKeepAlive bound a keep alive timeout: controllers count
	// in steps of 100 ms, and a lost path's writes are in doubt for two or three.
	minKeepAlive = 100 * time.Millisecond
	maxKeepAlive = time.Minute
	// maxFence bounds a fence in a file of ours.
	maxFence = time.Hour
	// maxNSID bounds a namespace ID (NVMe Base 3.2.1).
	maxNSID = 0xfffffffe

	// maxRedirects bounds the hops of one login.
	maxRedirects = 4
	// loginMin is the least time one TCP connect, and one login, may take; above
	// it the path timeout is the bound: a portal that does not answer a login for
	// so long is as dead as a session that does not answer.
	loginMin = 2 * time.Second
	// portalLogins is how many logins per second one portal gets from this
	// process, after portalBurst at once: targets answer logins one after the
	// other (LIO has one thread per portal), an array's portal serves other hosts
	// too, and 1,000 volumes must be back within 30 s, of which the back-off may
	// take five. A node's usual 50 volumes are the burst.
	portalLogins = 100
	portalBurst  = 64
	// portalInFlight is how many logins one portal has from us at a time.
	portalInFlight = 32
	// processLogins, processBurst and processInFlight are the same over all
	// portals: what this process can do beside its I/O.
	processLogins   = 250
	processBurst    = 128
	processInFlight = 128
	// loginLease is how long a login counts as in flight: one that hangs, at a
	// portal that swallows everything, must not keep others from trying.
	loginLease = time.Second
	// maxReserveSteps bounds the steps of one path to a reservation: each removes at
	// most one of scsi.MaxKeys registrations.
	maxReserveSteps = 1100
	// releaseWithin bounds giving a reservation back.
	releaseWithin = 5 * time.Second
	// maxTurnWait is how long a login may be overtaken by more urgent ones.
	maxTurnWait = 5 * time.Second
	// maxGates is how many portals are remembered while nobody waits.
	maxGates = 256
	// statusTimeout bounds one answer on a status socket.
	statusTimeout = time.Second
	// maxISIDs bounds the ISID file.
	maxISIDs = 65536
	// maxPortalName bounds a portal in a file of ours, bytes.
	maxPortalName = 512
	// maxStateFile bounds a file of ours that is read back, bytes.
	maxStateFile = 16 << 20
	// maxRequest bounds one request on a control socket, bytes.
	maxRequest = 4096
	// maxRequests bounds the connections on one control socket served at once.
	maxRequests = 8
	// acceptPause is how long the control socket waits after a failure to accept.
	acceptPause = 50 * time.Millisecond
	// maxStatus bounds one status answer, bytes.
	maxStatus = 4 << 20
)
