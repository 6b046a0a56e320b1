package keeper

import (
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
)

// Limits of this package (I6).
const (
	// maxFile bounds a file of the journal, bytes: maxPublications of them with
	// all names and secrets at their longest.
	maxFile = 4 << 20
	// maxPublications bounds the nodes that have one volume, those included that are
	// being revoked: what is written down can be served by every exporter.
	maxPublications = export.MaxAccess

	// restoreWorkers, reconcileWorkers and fenceWorkers are how many volumes are
	// worked on side by side: at start, when nobody is served, and later.
	restoreWorkers   = 32
	reconcileWorkers = 8
	fenceWorkers     = 16

	reconcileEvery = time.Minute
	// reconcileSoon is when a pass in which something failed is repeated.
	reconcileSoon = 5 * time.Second
	// settleTimeout bounds what one volume may take of a pass.
	settleTimeout = 30 * time.Second
	// drainTimeout bounds what a start waits for all revocations together.
	drainTimeout  = 5 * time.Second
	sessionsEvery = 5 * time.Second
	poolsEvery    = 10 * time.Second
	// pollTimeout bounds one look at an exporter's sessions, at a pool's space or its
	// objects, or for orphans.
	pollTimeout = 30 * time.Second
	// sessionsTimeout bounds what a list of publications waits for who is connected.
	sessionsTimeout = 2 * time.Second
	// recoverAfter is how many looks in a row a pool must be below its marks.
	recoverAfter = 3

	// unfinishedAfter is when an object whose creation was not finished counts as
	// an orphan: a repetition finishes one that is younger.
	unfinishedAfter = 10 * time.Minute
	// maxOrphans bounds the report.
	maxOrphans = 1000

	// maxEvents are the events kept for a slow watcher, maxWatchers the watchers.
	maxEvents   = 1024
	maxWatchers = 64
)
