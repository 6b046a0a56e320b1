package nvmetcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
)

// logs counts the reads of a log page, and those that left its event masked.
func (s *scripted) logs(page uint8) (all, retained int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.commands {
		if c.Opcode != nvme.AdminGetLog {
			continue
		}
		if r := nvme.ParseLogRequest(&c); r.Page == page {
			all++
			if r.Retain {
				retained++
			}
		}
	}
	return all, retained
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

func TestB14EachNamespaceEventIsReadAndTheNextOneComes(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		s.id.AsyncEvents = 0 // one request at a time
		_, _, w := s.opened(s.settings())
		synctest.Wait()
		before, _ := s.logs(nvme.LogChangedNamespaces)
		for i := range 200 {
			s.locked(func() { s.changed = []uint32{1} })
			if !s.event(nvme.NamespaceChanged) {
				t.Fatalf("event %d finds no request", i)
			}
			synctest.Wait()
			if e := w.heard(); e&blk.IdentityChanged == 0 {
				t.Fatalf("event %d: evidence %x", i, e)
			}
		}
		if all, retained := s.logs(nvme.LogChangedNamespaces); all-before != 200 || retained != 0 {
			t.Errorf("%d reads of the log, %d of them left the event masked", all-before, retained)
		}
	})
}

func TestB14TooManyChangesMeanEachNamespace(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		_, _, w := s.opened(s.settings())
		synctest.Wait()
		s.locked(func() { s.changed = make([]uint32, nvme.MaxListed+1) })
		s.event(nvme.NamespaceChanged)
		synctest.Wait()
		if e := w.heard(); e&blk.IdentityChanged == 0 {
			t.Errorf("evidence %x", e)
		}
	})
}

func TestB14ANamespaceRemovedUnderReadsFailsThemAndNothingElse(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		var held []nvme.Command
		var on *scriptedQueue
		s.io = func(q *scriptedQueue, c *nvme.Command, _ []byte) bool { on, held = q, append(held, *c); return true }
		c, n, w := s.opened(s.settings())
		for i := range uint64(16) {
			start(t, n, newRead(i*512, 512))
		}
		synctest.Wait()
		s.locked(func() {
			s.changed = []uint32{1}
			for _, c := range held {
				on.complete(&c, 0, nvme.InvalidNamespace.Final())
			}
		})
		s.event(nvme.NamespaceChanged)
		for range 16 {
			if got, lost := w.outcome(t); lost || got.Verdict.Class != blk.LUNGone {
				t.Fatalf("%+v, lost %v", got.Verdict, lost)
			}
		}
		synctest.Wait()
		if w.heard()&blk.IdentityChanged == 0 || c.Err() != nil {
			t.Error("no evidence, or the controller is over: ", c.Err())
		}
	})
}

func TestB14ANAEventsSayThatAccessChanged(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		c, _, w := s.opened(s.settings())
		synctest.Wait()
		w.heard()
		s.locked(func() { s.ana.Groups[0].State = nvme.Inaccessible })
		s.event(nvme.ANAChanged)
		synctest.Wait()
		if e := w.heard(); e&blk.AccessChanged == 0 || e&blk.IdentityChanged != 0 {
			t.Errorf("evidence %x", e)
		}
		if p, err := c.Identify(t.Context(), 1); err != nil || p.State != nvme.Inaccessible {
			t.Errorf("%+v, %v", p, err)
		}
	})
}

func TestB14AConnectAsksForTheEventsThatMatter(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		s.opened(s.settings())
		synctest.Wait()
		s.locked(func() {
			if s.events&(nvme.AsyncNamespace|nvme.AsyncANA) != nvme.AsyncNamespace|nvme.AsyncANA {
				t.Errorf("asked for %x", s.events)
			}
		})
	})
}

// B-11: a refusal by ANA state, and the controller dies before its log could be
// read. The next one's log counts, and it is always read.
func TestB11TheANALogIsReadAnewAfterEachConnect(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		s.io = func(q *scriptedQueue, c *nvme.Command, _ []byte) bool {
			q.complete(c, 0, nvme.ANATransition)
			return true
		}
		c, n, w := s.opened(s.settings())
		cmd := newRead(0, 512)
		start(t, n, cmd)
		if got, lost := w.outcome(t); lost || got.Verdict.Class != blk.WrongState {
			t.Fatalf("%+v, lost %v: a refusal is a definite answer", got.Verdict, lost)
		}
		synctest.Wait()
		if w.heard()&blk.AccessChanged == 0 {
			t.Error("no evidence of another state")
		}
		s.locked(func() {
			s.admin = func(q *scriptedQueue, c *nvme.Command, _ []byte) bool {
				if dies := c.Opcode == nvme.AdminGetLog; dies {
					q.Close()
				}
				return c.Opcode == nvme.AdminGetLog
			}
		})
		if _, err := c.Identify(t.Context(), 1); err == nil {
			t.Error("the log was never answered, and the namespace identified")
		}
		<-c.Done()
		s.locked(func() { s.admin, s.io = nil, nil })
		before, _ := s.logs(nvme.LogANA)
		_, n, w = s.opened(s.settings())
		if after, _ := s.logs(nvme.LogANA); after == before {
			t.Error("the log was not read")
		}
		w.finish(t, n, newRead(0, 512))
	})
}

func TestB17AnIOQueueJoinsTheControllerOfItsAdminQueue(t *testing.T) {
	bubble(t, func(t *testing.T, a *scripted) {
		b := newScripted(t)
		defer b.over()
		a.id.ControllerID, b.id.ControllerID = 7, 7
		for _, s := range []*scripted{a, b} {
			cfg := s.settings()
			cfg.Queues = 3
			c, n, w := s.opened(cfg)
			w.finish(t, n, newRead(0, 512))
			if c.Info().CNTLID != 7 {
				t.Errorf("controller %d", c.Info().CNTLID)
			}
			s.locked(func() {
				if len(s.joined) != 4 {
					t.Fatalf("%d queues", len(s.joined))
				}
				for i, d := range s.joined {
					want := uint16(7)
					if i == 0 {
						want = nvme.AnyController
					}
					if d.ControllerID != want || d.HostID != cfg.HostID || d.Host != someHost || d.Subsystem != someSubsystem {
						t.Errorf("queue %d: %+v", i, d)
					}
				}
			})
		}
	})
}

func TestB20AnIdleHostKeepsItsControllerAlive(t *testing.T) {
	for _, tbkas := range []bool{false, true} {
		t.Run(fmt.Sprint("TBKAS ", tbkas), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *scripted) {
				if !tbkas {
					s.id.Attributes &^= nvme.CtrattTBKAS
				}
				const kato = 5 * time.Second
				last, longest, alive := time.Now(), time.Duration(0), 0
				s.admin = func(_ *scriptedQueue, c *nvme.Command, _ []byte) bool {
					if c.Opcode == nvme.AdminKeepAlive {
						longest, last = max(longest, time.Since(last)), time.Now()
						alive++
					}
					return false
				}
				cfg := s.settings()
				cfg.KeepAlive = kato
				c, _, _ := s.opened(cfg)
				<-time.After(time.Minute)
				if c.Err() != nil {
					t.Fatal(c.Err())
				}
				s.locked(func() {
					if alive < 24 || longest > kato*6/10 {
						t.Errorf("%d keep alives in a minute, %v between two of them, KATO is %v", alive, longest, kato)
					}
					for _, q := range s.conns {
						if want := uint32(kato / time.Millisecond); q.id == 0 && q.conn.KeepAlive != want || q.id != 0 && q.conn.KeepAlive != 0 {
							t.Errorf("queue %d was connected with KATO %d", q.id, q.conn.KeepAlive)
						}
					}
				})
			})
		})
	}
}

func TestB20ALinkThatDiesSilentlyIsSeenWithinKATO(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		cfg := s.settings()
		cfg.KeepAlive, cfg.PathTimeout = 5*time.Second, 2*time.Second
		c, _, w := s.opened(cfg)
		since := time.Now()
		s.hush()
		<-c.Done()
		if d := time.Since(since); d > cfg.KeepAlive || !errors.Is(c.Err(), ErrPathTimeout) {
			t.Errorf("after %v: %v", d, c.Err())
		}
		if l := <-w.lost; len(l) != 0 {
			t.Errorf("%d commands were lost", len(l))
		}
	})
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

func TestB20ATeardownNeedsNoAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		for _, end := range []func(c *Controller){
			func(c *Controller) { c.Abort(io.EOF) },
			func(c *Controller) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := c.Shutdown(ctx); err == nil {
					t.Error("a shutdown that nobody answered was acknowledged")
				}
			},
		} {
			c, n, w := s.opened(s.settings())
			s.hush()
			cmd := newWrite(0, pattern(64<<10, 1))
			start(t, n, cmd)
			since := time.Now()
			end(c)
			if got, lost := w.outcome(t); got != cmd || !lost || !got.Sent {
				t.Errorf("%+v, lost %v, sent %v", got.Verdict, lost, got.Sent)
			}
			<-c.Done()
			if d := time.Since(since); d > 2*time.Second {
				t.Errorf("it took %v", d)
			}
			s.locked(func() { s.init = nil })
		}
	})
}

func TestB20AFatalStatusEndsTheController(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		c, _, _ := s.opened(s.settings())
		synctest.Wait()
		s.locked(func() { s.fatal = true })
		s.event(nvme.Event{Type: nvme.EventError, Info: 3, Log: nvme.LogError}) // persistent internal error
		select {
		case <-c.Done():
			if !errors.Is(c.Err(), ErrFailed) {
				t.Error(c.Err())
			}
		case <-time.After(time.Minute):
			t.Error("CSTS.CFS was never looked at")
		}
	})
}

func TestB20TheFenceIsAsLongAsTheControllerMayLive(t *testing.T) {
	for _, c := range []struct {
		tbkas bool
		cqt   uint16 // ms
		want  time.Duration
	}{{false, 0, 10 * time.Second}, {true, 0, 15 * time.Second}, {true, 1500, 16500 * time.Millisecond}} {
		bubble(t, func(t *testing.T, s *scripted) {
			s.id.Quiesce = c.cqt
			if !c.tbkas {
				s.id.Attributes &^= nvme.CtrattTBKAS
			}
			cfg := s.settings()
			cfg.KeepAlive = 5 * time.Second
			ctrl, _, _ := s.opened(cfg)
			if got := ctrl.FenceBound(); got != c.want {
				t.Errorf("TBKAS %v, CQT %d ms: %v, want %v", c.tbkas, c.cqt, got, c.want)
			}
			if i := ctrl.Info(); i.TBKAS != c.tbkas || i.KATO != cfg.KeepAlive || i.CQT != time.Duration(c.cqt)*time.Millisecond {
				t.Errorf("%+v", i)
			}
		})
	}
}

func TestB22AHostUsesTheQueuesItIsGranted(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		cfg := s.settings()
		cfg.Queues = 4
		for _, c := range []struct{ granted, want int }{{8, 4}, {1, 1}, {4, 4}, {3, 3}, {65536, 4}} {
			s.locked(func() { s.queues = c.granted })
			ctrl, n, w := s.opened(cfg)
			if got := ctrl.Info().Queues; got != c.want {
				t.Errorf("%d granted, 4 asked for: %d", c.granted, got)
			}
			for lane := range 8 {
				cmd := newRead(uint64(lane)*512, 512)
				if !n.Submit(cmd, lane) {
					t.Fatalf("lane %d: not taken", lane)
				}
				n.Kick(lane)
				if got, lost := w.outcome(t); lost || got.Verdict.Class != blk.Good {
					t.Errorf("lane %d: %+v", lane, got.Verdict)
				}
			}
			ctrl.Abort(io.EOF)
			<-ctrl.Done()
		}
	})
}

func TestB22AQueueThatIsRefusedDoesNotHangTheConnect(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		s.connect = func(_ *scriptedQueue, c nvme.ConnectCommand, _ *nvme.ConnectData) nvme.Status {
			if c.QueueID == 4 {
				return nvme.ConnectInvalid.Final()
			}
			return nvme.Success
		}
		cfg := s.settings()
		cfg.Queues = 4
		since := time.Now()
		c, err := Dial(t.Context(), cfg)
		if d := time.Since(since); d > time.Second {
			t.Errorf("it took %v", d)
		}
		if err == nil {
			if got := c.Info().Queues; got != 3 {
				t.Errorf("%d queues", got)
			}
			c.Abort(io.EOF)
			<-c.Done()
		}
	})
}

// B-23: a conflict is final for the command: no retry, no loss of the path.
func TestB23AReservationConflictIsFinalForTheCommandAlone(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		s.io = func(q *scriptedQueue, c *nvme.Command, _ []byte) bool {
			if c.Opcode != nvme.OpWrite {
				return false
			}
			q.complete(c, 0, nvme.ReservationConflict)
			return true
		}
		c, n, w := s.opened(s.settings())
		start(t, n, newWrite(0, pattern(512, 1)))
		want := blk.Verdict{Class: blk.TargetError, Status: blk.Conflict, Evidence: blk.Fenced}
		if got, lost := w.outcome(t); lost || got.Verdict != want {
			t.Errorf("%+v, lost %v", got.Verdict, lost)
		}
		w.finish(t, n, newRead(0, 512))
		if c.Err() != nil {
			t.Error(c.Err())
		}
	})
}

func TestB23TheHostIdentifierIsTheSameOnEachController(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		for range 2 {
			c, _, _ := s.opened(s.settings())
			c.Abort(io.EOF)
			<-c.Done()
		}
		s.locked(func() {
			for _, d := range s.joined {
				if d.HostID != [16]byte{1} {
					t.Errorf("%x", d.HostID)
				}
			}
		})
	})
}

func TestB09TransfersAreBoundedByMDTS(t *testing.T) {
	for _, c := range []struct {
		mdts, page uint8
		want       uint32
	}{{5, 12, 128 << 10}, {1, 13, 16 << 10}, {0, 12, nvme.OwnMaxTransfer}} {
		bubble(t, func(t *testing.T, s *scripted) {
			s.id.MDTS, s.caps.MinPageShift, s.caps.MaxPageShift = c.mdts, c.page, c.page
			p, err := s.bring(s.settings()).Identify(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Limits().MaxTransfer; got != c.want {
				t.Errorf("MDTS %d, pages of 2^%d bytes: %d, want %d", c.mdts, c.page, got, c.want)
			}
		})
	}
}

func TestB16IdentifiersAreTheControllersAndZeroesAreNone(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		c := s.bring(s.settings())
		device := func() string {
			p, err := c.Identify(t.Context(), 1)
			if err != nil {
				return err.Error()
			}
			return p.Identity().String()
		}
		if got := device(); got != "uuid."+s.ids.UUID {
			t.Error(got)
		}
		s.locked(func() { s.ids.UUID, s.ns.NGUID = "00000000-0000-0000-0000-000000000000", [16]byte{1} })
		if got := device(); got != "eui.01000000000000000000000000000000" {
			t.Error(got)
		}
		s.locked(func() { // a controller that knows no descriptors
			s.ns.NGUID, s.ns.EUI64 = [16]byte{}, [8]byte{2}
			s.admin = func(q *scriptedQueue, c *nvme.Command, _ []byte) bool {
				if c.Opcode != nvme.AdminIdentify || c.CNS() != nvme.CNSDescriptors {
					return false
				}
				q.complete(c, 0, nvme.InvalidField.Final())
				return true
			}
		})
		if got := device(); got != "eui.0200000000000000" {
			t.Error(got)
		}
	})
}
