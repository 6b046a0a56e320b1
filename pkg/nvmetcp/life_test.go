package nvmetcp

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/wire"
)

func TestKeepAlivesComeWithinHalfOfKATOForAsLongAsItIsIdle(t *testing.T) {
	p := pulse{kato: 5 * time.Second, silence: 5 * time.Second}
	var last time.Duration
	received := uint64(0)
	for now := time.Duration(0); now < 10*time.Minute; {
		send, dead := p.tick(now, received, false)
		if dead {
			t.Fatal("dead")
		}
		if send {
			if now-last > 5*time.Second/2 {
				t.Fatalf("%v without", now-last)
			}
			last = now
			received++
		}
		p.slept = max(p.quiet(now), wire.TickInterval)
		now += p.slept
	}
}

func TestSilenceForKATOIsTheEnd(t *testing.T) {
	p := pulse{kato: 5 * time.Second, silence: 5 * time.Second}
	outstanding := false
	for now := time.Duration(0); now < time.Minute; now += p.slept {
		send, dead := p.tick(now, 1, outstanding)
		outstanding = outstanding || send && now > 0
		if dead {
			if now > 5*time.Second+2*wire.TickInterval {
				t.Fatalf("noticed after %v", now)
			}
			return
		}
		if p.slept = wire.TickInterval; !outstanding {
			p.slept = max(p.quiet(now), wire.TickInterval)
		}
	}
	t.Fatal("never noticed")
}

func TestAProcessThatStoodStillDoesNotBlameThePath(t *testing.T) {
	p := pulse{kato: 5 * time.Second, silence: 5 * time.Second, slept: wire.TickInterval}
	p.tick(time.Second, 1, true)
	if _, dead := p.tick(time.Hour, 1, true); dead {
		t.Fatal("dead")
	}
}

func TestACommandThatIsNotAnsweredIsAbortedAndThenEndsTheController(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		s.io = func(*scriptedQueue, *nvme.Command, []byte) bool { return true }
		c, n, p := s.opened(s.settings())
		w := newWrite(0, pattern(4096, 7))
		began := time.Now()
		start(t, n, w)
		_, isLost := p.outcome(t)
		d, aborts := time.Since(began), 0
		<-c.Done()
		for _, e := range s.commands {
			if sqid, cid := e.AbortTarget(); e.Opcode == nvme.AdminAbort && sqid == 1 && uint32(cid) == w.Tag {
				aborts++
			}
		}
		if limit := defaultCommandTimeout + abortTimeout; !isLost || !w.Sent || aborts != 1 ||
			!errors.Is(c.Err(), ErrCommandTimeout) || d < limit || d > limit+4*wire.TickInterval {
			t.Errorf("lost %t after %v and %d aborts: %v", isLost, d, aborts, c.Err())
		}
	})
}

func TestACommandAbortedInTimeIsNotInDoubt(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		var held *scriptedQueue
		s.io = func(q *scriptedQueue, _ *nvme.Command, _ []byte) bool { held = q; return true }
		s.admin = func(q *scriptedQueue, e *nvme.Command, _ []byte) bool {
			if e.Opcode != nvme.AdminAbort {
				return false
			}
			_, cid := e.AbortTarget()
			held.respond(cid, 0, nvme.AbortRequested)
			q.complete(e, 0, nvme.Success)
			return true
		}
		c, n, p := s.opened(s.settings())
		w := newWrite(0, pattern(4096, 7))
		start(t, n, w)
		if _, isLost := p.outcome(t); isLost || w.Verdict.Class != blk.Aborted || c.Err() != nil {
			t.Errorf("lost %t, %v, %v", isLost, w.Verdict, c.Err())
		}
		c.Abort(ErrClosed)
		<-c.Done()
	})
}

func TestOnlyTheNamespaceThatChangedIsInQuestion(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		c, n, p := s.opened(s.settings())
		q := newPatient()
		other := c.Namespace(2, 8, q)
		s.mu.Lock()
		s.changed = []uint32{1}
		s.mu.Unlock()
		if !s.event(nvme.NamespaceChanged) {
			t.Fatal("nobody waits for an event")
		}
		if e := <-p.evidence; e&blk.IdentityChanged == 0 || n.Gate() == 0 {
			t.Errorf("evidence %v, gate %d", e, n.Gate())
		}
		synctest.Wait()
		if len(q.evidence) != 0 || other.Gate() != 0 {
			t.Errorf("the other: %d evidence, gate %d", len(q.evidence), other.Gate())
		}
		c.Abort(ErrClosed)
		<-c.Done()
	})
}

func TestEveryEventIsTold(t *testing.T) {
	s := newScripted(t)
	_, _, p := s.opened(s.settings())
	for range 200 {
		for !s.event(nvme.ANAChanged) { // it is asked for again at once
			<-time.After(time.Millisecond)
		}
		if e := <-p.evidence; e&blk.AccessChanged == 0 {
			t.Fatalf("%v", e)
		}
	}
}

func TestTheStateIsReadFromTheLogOfThisController(t *testing.T) {
	s := newScripted(t)
	c, _, _ := s.opened(s.settings())
	s.mu.Lock()
	s.ana.Groups[0].State = nvme.Inaccessible
	s.mu.Unlock()
	if st, err := c.Access(t.Context(), 1); err != nil || st != nvme.Inaccessible {
		t.Errorf("%v, %v", st, err)
	}
	if p, err := c.Identify(t.Context(), 1); err != nil || p.State != nvme.Inaccessible {
		t.Errorf("%v, %v", p, err)
	}
}

func TestFlowControlIsKeptWhereTheControllerInsists(t *testing.T) {
	s := newScripted(t)
	s.connect = func(_ *scriptedQueue, c nvme.ConnectCommand, _ *nvme.ConnectData) nvme.Status {
		if c.Attributes&nvme.ConnectNoFlowControl != 0 {
			return nvme.ConnectInvalid.Final()
		}
		return nvme.Success
	}
	_, n, p := s.opened(s.settings())
	p.finish(t, n, newRead(0, 512))
}
