package nvmetcp

import (
	"testing"
	"testing/synctest"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
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

// I1: what the event is about is known only once the log was read.
func TestB14NothingIsSentUntilTheEventIsUnderstood(t *testing.T) {
	for name, changed := range map[string]uint32{"another namespace": 5, "this one": 1} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *scripted) {
				sent := 0
				var asked *nvme.Command
				s.io = func(*scriptedQueue, *nvme.Command, []byte) bool { sent++; return false }
				s.admin = func(_ *scriptedQueue, c *nvme.Command, _ []byte) bool {
					if c.Opcode == nvme.AdminGetLog && nvme.ParseLogRequest(c).Page == nvme.LogChangedNamespaces {
						asked = c
					}
					return asked == c
				}
				_, n, w := s.opened(s.settings())
				synctest.Wait()
				s.event(nvme.NamespaceChanged)
				synctest.Wait()
				start(t, n, newWrite(0, pattern(512, 1)))
				synctest.Wait()
				s.locked(func() {
					if asked == nil || sent != 0 {
						t.Fatalf("log asked for: %v, commands sent: %d", asked != nil, sent)
					}
					s.changed = []uint32{changed}
					s.conns[0].log(asked)
				})
				synctest.Wait()
				s.locked(func() {
					if (sent == 1) != (changed != 1) {
						t.Errorf("%d commands sent", sent)
					}
				})
				if e := w.heard(); (e&blk.IdentityChanged != 0) != (changed == 1) {
					t.Errorf("evidence %x", e)
				}
			})
		})
	}
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

// B-14: a controller need not tell more than that the log changed.
func TestB14ANamespaceThatMovedOutOfALostGroupIsFoundInItsNewOne(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		c, _, _ := s.opened(s.settings())
		s.locked(func() {
			s.ns.Group = 2
			s.ana.Groups = []nvme.ANAGroup{{ID: 1, State: nvme.Inaccessible}, {ID: 2, State: nvme.NonOptimized, NSIDs: []uint32{1}}}
		})
		for range 2 {
			if got, err := c.Access(t.Context(), 1); err != nil || got != nvme.NonOptimized {
				t.Errorf("%v, %v", got, err)
			}
		}
		s.locked(func() { s.ana.Groups[1].State = nvme.Changing })
		if got, err := c.Access(t.Context(), 1); err != nil || got != nvme.Changing {
			t.Errorf("%v, %v", got, err)
		}
	})
}
