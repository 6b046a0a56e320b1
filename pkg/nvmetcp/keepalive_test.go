package nvmetcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
)

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
		step  uint16 // KAS, 100 ms: the controller rounds KATO up to it
		want  time.Duration
	}{{false, 0, 1, 10 * time.Second}, {true, 0, 10, 15 * time.Second}, {true, 1500, 1, 16500 * time.Millisecond},
		{false, 0, 20, 12 * time.Second}} {
		bubble(t, func(t *testing.T, s *scripted) {
			s.id.Quiesce, s.id.KeepAliveStep = c.cqt, c.step
			if !c.tbkas {
				s.id.Attributes &^= nvme.CtrattTBKAS
			}
			cfg := s.settings()
			cfg.KeepAlive = 5 * time.Second
			ctrl, _, _ := s.opened(cfg)
			if got := ctrl.FenceBound(); got != c.want {
				t.Errorf("TBKAS %v, CQT %d ms: %v, want %v", c.tbkas, c.cqt, got, c.want)
			}
			if i := ctrl.Info(); i.TBKAS != c.tbkas || i.KATO < cfg.KeepAlive || i.CQT != time.Duration(c.cqt)*time.Millisecond {
				t.Errorf("%+v", i)
			}
		})
	}
}
