package nvmetcp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
)

func TestB06DataGoesInTheCapsuleOnlyWhereItFits(t *testing.T) {
	for _, c := range []struct {
		units uint32
		most  int // bytes in capsule
	}{{0, 0}, {4, 0}, {260, 4096}, {8196, 128 << 10}, {260 + 256, 8192}} {
		t.Run(fmt.Sprint("IOCCSZ ", c.units), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *scripted) {
				s.id.CapsuleUnits = c.units
				var sgl nvme.SGL
				capsule := 0
				s.io = func(_ *scriptedQueue, c *nvme.Command, data []byte) bool {
					sgl, capsule = c.SGL, len(data)
					return false
				}
				_, n, w := s.opened(s.settings())
				for _, size := range []int{512, 4096, 8192, 64 << 10} {
					data := pattern(size, 1)
					w.finish(t, n, newWrite(0, data))
					if !bytes.Equal(s.mem[:size], data) {
						t.Fatalf("%d bytes: other data", size)
					}
					if capsule > c.most || (sgl.Kind == nvme.SGLInCapsule) != (capsule > 0) || int(sgl.Len) != size || sgl.Offset != 0 {
						t.Errorf("%d bytes: %d in the capsule, %+v", size, capsule, sgl)
					}
					if size <= min(c.most, 4096) && capsule != size {
						t.Errorf("%d bytes would fit the capsule", size)
					}
				}
			})
		})
	}
}

func TestB06AnOffsetOfDataInCapsulesIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		s.id.DataOffset = 1
		if c, err := Dial(t.Context(), s.settings()); !errors.Is(err, ErrViolation) {
			t.Errorf("%v, %v", c, err)
		}
	})
}

func TestB07NoMoreCommandsThanTheQueueHolds(t *testing.T) {
	for _, c := range []struct {
		entries uint32 // MQES + 1
		maxcmd  uint16
		depth   int // asked for
	}{{128, 0, 32}, {16, 8, 128}, {16, 0, 128}, {128, 8, 128}, {3, 0, 128}, {128, 128, 128}} {
		t.Run(fmt.Sprintf("MQES %d MAXCMD %d depth %d", c.entries-1, c.maxcmd, c.depth), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *scripted) {
				s.caps.MaxEntries, s.id.MaxCommands = c.entries, c.maxcmd
				held := map[uint16]nvme.Command{}
				var q *scriptedQueue
				s.io = func(on *scriptedQueue, c *nvme.Command, _ []byte) bool {
					if _, twice := held[c.CID]; twice {
						t.Errorf("CID %d is out twice", c.CID)
					}
					held[c.CID], q = *c, on
					return true
				}
				cfg := s.settings()
				cfg.QueueDepth = c.depth
				_, n, w := s.opened(cfg)
				for left := 200; left > 0; {
					for left > 0 && n.Submit(newRead(0, 512), 0) {
						left--
					}
					n.Kick(0)
					synctest.Wait()
					s.mu.Lock()
					checkQueue(t, s, q, c.depth)
					for _, h := range held {
						q.give(&h, s.mem[:512])
					}
					clear(held)
					s.mu.Unlock()
					synctest.Wait()
				}
				if len(w.done) != 200 || len(w.lost) != 0 {
					t.Errorf("%d of 200 came back", len(w.done))
				}
			})
		})
	}
}

// checkQueue holds an I/O queue against what the controller said.
func checkQueue(t *testing.T, s *scripted, q *scriptedQueue, depth int) {
	t.Helper()
	most := q.size
	if q.conn.Attributes&nvme.ConnectNoFlowControl == 0 {
		most-- // a queue is full with one entry free
	}
	if s.id.MaxCommands > 0 {
		most = min(most, int(s.id.MaxCommands))
	}
	if q.size > int(s.caps.MaxEntries) || q.most > most || q.most > depth || q.most == 0 {
		t.Fatalf("a queue of %d entries, %d commands at once: want at most %d entries, %d commands", q.size, q.most,
			s.caps.MaxEntries, min(most, depth))
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
