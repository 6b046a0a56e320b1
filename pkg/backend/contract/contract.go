// Package contract is the test that every backend passes. What it wants is what
// the comments of package backend say; where they leave a backend a choice, so
// does the contract.
//
//	func TestContract(t *testing.T) {
//		contract.Run(t, func(t *testing.T) contract.Subject { return open(t) })
//	}
//
// Checks that need what a Subject does not have are not run.
package contract

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Subject is a backend under test, without volumes, and what can be done to it.
type Subject struct {
	Backend backend.Backend
	// Tenant that Backend is for: names of objects depend on it.
	Tenant string
	// Pool to make volumes in: it has room for sixteen of the smallest.
	Pool string
	// Transports to publish through: empty is all that the pool has.
	Transports []backend.Transport
	// Other is what another tenant sees of the same storage; nil: there are none.
	Other backend.Backend
	// Restart ends the server as its operator would, and starts it over what it
	// left. The Subject it is called on is not used any more. nil: it has nothing
	// to restart.
	Restart func(t testing.TB) Subject
	// Crash makes call, which makes calls of the backend it is given, and ends the
	// server the nth time (from 1) that it comes to a fault point: the step after it
	// must not happen. Then it starts the server over what is left. reached false:
	// call returned before that, and the Subject is as it was. Interrupt does the
	// half of it for a server in this process. nil: not checked.
	Crash func(t testing.TB, point string, nth int, call func(backend.Backend)) (next Subject, reached bool)
	// Points to crash at; nil: those that a call comes to in this process.
	Points []string
	// Leftovers lists what a storage without volumes, snapshots and publications
	// should not have: files, exports, records. nil: not checked.
	Leftovers func(t testing.TB) []string
	// Attach logs in as a node would. Its Disk fails, within seconds, when the
	// target refuses it. nil: the backend has no bytes.
	Attach func(ctx context.Context, c backend.Connection, a backend.Auth) (Disk, error)
	// Unenforced are transports whose exporter cannot keep a publication from writing
	// that is for reading only: there it is up to the node.
	Unenforced []backend.Transport
	// Calls of the random sequence; 0 is 1500.
	Calls int
	// Within is the time for one check, however slow the machine; 0 is four minutes.
	Within time.Duration
}

// Disk is an attached volume. Nothing is cached: what is read was at the target.
type Disk interface {
	io.ReaderAt
	io.WriterAt
	Flush() error
	Close() error
}

// needs are what a Subject must have for a check.
type needs int

const (
	eachTransport needs = 1 << iota // it is run once for each
	otherTenant
	restart
	crash
	bytes
)

// check is one rule.
type check struct {
	name  string
	needs needs
	run   func(r *trial)
}

// checks are all rules.
var checks = slices.Concat(volumeChecks, requestChecks, snapshotChecks, publishChecks, fenceChecks, listChecks,
	outerChecks, dataChecks, endChecks)

// Run tests the backends that open makes, one for each check.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			if !s.has(c.needs) {
				return
			}
			r := try(t, s)
			if c.needs&eachTransport == 0 {
				c.run(r)
				return
			}
			for i, transport := range r.s.Transports {
				t.Run(string(transport), func(t *testing.T) {
					if i > 0 {
						r = try(t, open(t))
					}
					r.TB, r.transport = t, transport
					c.run(r)
				})
			}
		})
	}
}

// has reports whether a check can be run.
func (s Subject) has(n needs) bool {
	return (n&otherTenant == 0 || s.Other != nil) &&
		(n&restart == 0 || s.Restart != nil) &&
		(n&crash == 0 || s.Crash != nil) &&
		(n&bytes == 0 || s.Attach != nil)
}
