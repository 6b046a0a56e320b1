package sim

import (
	"fmt"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// The verbs that a protocol has words for. What only one has:
//
//	iSCSI  sense, attention, redirect, logout, ping
//	NVMe   notice, reset, spoil (its connections have digests), and commands of
//	       kind admin
//
// A target that lost power says so over iSCSI alone: over NVMe die lose only shows
// that what was flushed is there.

func makeBusy(a *args) func(r *run) func() {
	n, full := a.num(10, 1, 1000), a.option("full")
	return func(r *run) func() {
		r.oracle.refuses(a.setup.CmdTimeout)
		r.array.do(func(m front) { m.busy(n, full) })
		return nil
	}
}

func makeSense(a *args) func(r *run) func() {
	s := scsi.Sense{Key: byte(a.num(16, 0, 15)), ASC: byte(a.num(16, 0, 255)), ASCQ: byte(a.num(16, 0, 255))}
	n := a.num(16, 1, 1000)
	return overSCSI(n, scsi.StatusCheckCondition, s)
}

func makeStatus(a *args) func(r *run) func() {
	if a.setup.Transport == overISCSI {
		st := byte(a.num(16, 1, 255))
		return overSCSI(a.num(16, 1, 1000), st, scsi.Sense{})
	}
	st, n := a.nvmeStatus(), a.num(16, 1, 1000)
	return answers(func(f front) { _ = f.(*nvmeFront).Answer(serve.Match{Count: n}, st) })
}

// nvmeStatus reads a status as it is in a completion, phase tag left out.
func (a *args) nvmeStatus() nvme.Status { return nvme.Status(a.num(16, 1, 0x7fff)) }

func overSCSI(n int, st byte, s scsi.Sense) func(r *run) func() {
	return answers(func(f front) { _ = f.(*iscsiFront).Answer(serve.Match{Count: n}, st, s) })
}

// answers makes the target refuse commands; that may be what a client is told.
func answers(refuse func(f front)) func(r *run) func() {
	return func(r *run) func() {
		r.oracle.mayFail(errorTime)
		r.array.do(refuse)
		m := r.array.m
		r.w.after(errorTime, func() {
			if m != nil && m == r.array.m {
				r.array.do(front.ClearFaults)
			}
		})
		return nil
	}
}

// errorTime is how long a target goes on answering with an error of the script's.
const errorTime = 2 * time.Second

func makeAccess(a *args) func(r *run) func() {
	g, st := uint16(a.num(10, 1, 255)), choice(a, states)
	return func(r *run) func() {
		r.array.do(func(m front) { m.access(g, st) })
		return func() { r.array.do(func(m front) { m.access(g, optimized) }) }
	}
}

func makeAttention(a *args) func(r *run) func() {
	p := a.path()
	s := scsi.Sense{Key: scsi.KeyUnitAttention, ASC: byte(a.num(16, 0, 255)), ASCQ: byte(a.num(16, 0, 255))}
	if s == powerOn {
		a.fail(fmt.Errorf("29 01 says that power was lost: die lose"))
	}
	return rule(func(f front) { f.(*iscsiFront).Attention(p, lunNumber, s) })
}

// makeNotice tells that the namespace changed, when it did not.
func makeNotice(a *args) func(r *run) func() {
	p := a.path()
	return rule(func(f front) { f.(*nvmeFront).NamespaceChanged(p, lunNumber) })
}

func makeRedirect(a *args) func(r *run) func() {
	p, to := a.path(), a.path()
	return func(r *run) func() {
		r.array.do(func(f front) { _ = f.(*iscsiFront).Redirect(p, r.path(to).address, false) })
		return func() { r.array.do(func(f front) { _ = f.(*iscsiFront).Redirect(p, "", false) }) }
	}
}

func makeRefuse(a *args) func(r *run) func() {
	p := a.path()
	if a.setup.Transport == overNVMe {
		st := a.nvmeStatus()
		return func(r *run) func() {
			r.array.do(func(f front) { _ = f.(*nvmeFront).RefuseConnects(p, st) })
			return func() { r.array.do(func(f front) { _ = f.(*nvmeFront).RefuseConnects(p, nvme.Success) }) }
		}
	}
	class, detail := byte(a.num(10, 2, 3)), byte(a.num(10, 0, 12))
	return func(r *run) func() {
		r.array.do(func(f front) { _ = f.(*iscsiFront).RefuseLogins(p, class, detail) })
		return func() { r.array.do(func(f front) { _ = f.(*iscsiFront).RefuseLogins(p, 0, 0) }) }
	}
}

func makeLogout(a *args) func(r *run) func() {
	p := a.path()
	return rule(func(f front) { f.(*iscsiFront).Async(p, pdu.AsyncLogout, 1) })
}

func makePing(a *args) func(r *run) func() {
	p := a.path()
	return rule(func(f front) { f.(*iscsiFront).Ping(p) })
}

// makeReset is the target that ends the controllers of a portal, and their tasks.
func makeReset(a *args) func(r *run) func() {
	p := a.path()
	return rule(func(f front) { f.(*nvmeFront).EndControllers(p) })
}
