package mpv

import "time"

// Bounds (I6).
const (
	maxNamePart = 100 // bytes of an object's name that are the volume's
	maxLabel    = 63  // bytes, of Kubernetes
	// requestTime bounds one request to the API server.
	requestTime = 10 * time.Second
	// retries of one write; what fails more often is made up for by the next sweep.
	retries = 8
	// sweepEvery is how often the leader compares objects and attachments, and graceTime how
	// old an object is at least before it is taken for one that was forgotten.
	sweepEvery = time.Minute
	graceTime  = 5 * time.Minute
	// lookEvery is how often a node looks at its volumes when nothing tells it to, and
	// lookSoon how long it gathers what happens.
	lookEvery = 15 * time.Second
	lookSoon  = 200 * time.Millisecond
	// maxTold are notes that wait for the loop of a node.
	maxTold = 256
	// leaseTime is how long a leader that died is waited for.
	leaseTime = 30 * time.Second
	// tellSoon is how long the teller gathers changes.
	tellSoon = 100 * time.Millisecond
	// maxUsers are the pods of one volume that one Event is made for, and maxNote the
	// bytes of its note (Kubernetes: 1024).
	maxUsers = 16
	maxNote  = 1024
	// refusedFor is how long all paths of a volume whose object is gone must be refused
	// before its publication is taken for revoked.
	refusedFor = 30 * time.Second
)
