package nvmetcp

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
)

// bubble runs a test of a scripted controller in virtual time.
func bubble(t *testing.T, f func(t *testing.T, s *scripted)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newScripted(t)
		f(t, s)
		s.over()
	})
}

func newWrite(off uint64, b []byte) *blk.Command {
	return &blk.Command{Op: blk.Write, Off: off, Len: uint32(len(b)), Buf: b}
}

func newRead(off uint64, n int) *blk.Command {
	return &blk.Command{Op: blk.Read, Off: off, Len: uint32(n), Buf: make([]byte, n)}
}

// start submits a command and sends it.
func start(t *testing.T, n *Namespace, cmds ...*blk.Command) {
	t.Helper()
	for _, c := range cmds {
		if !n.Submit(c, 0) {
			t.Fatalf("%v of %d bytes was not taken", c.Op, c.Len)
		}
	}
	n.Kick(0)
}

// outcome waits for a command's end: its verdict, and whether it came back in Lost.
func (p *patient) outcome(t *testing.T) (c *blk.Command, lost bool) {
	t.Helper()
	select {
	case c = <-p.done:
	case l := <-p.lost:
		if len(l) != 1 {
			t.Fatalf("%d commands were lost", len(l))
		}
		return l[0], true
	}
	return c, false
}

// endsForViolation wants the controller to end for a violation, and its one command to
// come back lost.
func endsForViolation(t *testing.T, c *Controller, w *patient, sent *blk.Command) {
	t.Helper()
	got, lost := w.outcome(t)
	if got != sent || !lost {
		t.Fatalf("the command ended with %+v", got.Verdict)
	}
	<-c.Done()
	if !errors.Is(c.Err(), ErrViolation) {
		t.Errorf("the controller ended with %v", c.Err())
	}
}

func (s *scripted) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// heard takes the evidence that came so far.
func (p *patient) heard() (e blk.Evidence) {
	for len(p.evidence) > 0 {
		e |= <-p.evidence
	}
	return e
}

// hush pulls the cable: nothing arrives at either side, on these connections
// and on new ones.
func (s *scripted) hush() {
	s.locked(func() {
		s.init = func(*scriptedQueue, *pdu.ICReq) bool { return true }
		for _, q := range s.conns {
			q.tx.unplug()
			q.rx.unplug()
		}
	})
}
