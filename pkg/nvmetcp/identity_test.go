package nvmetcp

import (
	"io"
	"net"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/target/subsystem"
)

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

func TestB17AllQueuesGoToTheAddressThatANameStoodForFirst(t *testing.T) {
	cfg := onLoopback(t, subsystem.Config{})
	_, port, _ := net.SplitHostPort(cfg.Portal)
	cfg.Portal = net.JoinHostPort("localhost", port)
	c, n, w := dialed(t, cfg)
	if got, want := c.address(), net.JoinHostPort("127.0.0.1", port); got != want {
		t.Errorf("the next connection goes to %s, want %s", got, want)
	}
	w.finish(t, n, newRead(0, 512))
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

// B-26: a delay is passed on to whoever retries, and the controller knows that it
// may ask for one.
func TestB26ARetryDelayIsAskedForAndPassedOn(t *testing.T) {
	for crd, want := range []uint16{0, 3, 10, 600} {
		bubble(t, func(t *testing.T, s *scripted) {
			s.id.RetryDelays = [3]uint16{3, 10, 600}
			offered := false
			s.admin = func(_ *scriptedQueue, c *nvme.Command, data []byte) bool {
				if c.Opcode == nvme.AdminSetFeatures && c.Feature() == nvme.FeatureHostBehavior {
					offered = len(data) == nvme.HostBehaviorLen && nvme.TakesRetryDelays(data)
				}
				return false
			}
			s.io = func(q *scriptedQueue, c *nvme.Command, _ []byte) bool {
				q.complete(c, 0, nvme.CommandInterrupted.After(crd))
				return true
			}
			_, n, w := s.opened(s.settings())
			start(t, n, newRead(0, 512))
			if got, lost := w.outcome(t); lost || got.Verdict.Class != blk.RetryLater || got.Verdict.After != want || !offered {
				t.Errorf("CRD %d: %+v, offered %v", crd, got.Verdict, offered)
			}
		})
	}
}
