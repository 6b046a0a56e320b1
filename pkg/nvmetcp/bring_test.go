package nvmetcp

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
)

// The clock of ages stands until the ticker runs, which a login may take long to reach.
func TestALongLoginMakesNoCommandTooOld(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		const long = 3 * time.Second
		s.admin = func(q *scriptedQueue, c *nvme.Command, _ []byte) bool {
			switch {
			case c.Opcode == nvme.AdminIdentify:
				<-time.After(long / 4) // as a controller under load
			case c.Opcode == nvme.AdminSetFeatures && c.Feature() == nvme.FeatureQueues:
				time.AfterFunc(long/10, func() { s.locked(func() { q.administer(c, nil) }) })
				return true
			}
			return false
		}
		s.connect = func(q *scriptedQueue, c nvme.ConnectCommand, _ *nvme.ConnectData) nvme.Status {
			if c.QueueID == 0 {
				<-time.After(long)
			}
			return nvme.Success
		}
		cfg := s.settings()
		cfg.CommandTimeout = time.Second
		c, _, _ := s.opened(cfg)
		if c.Err() != nil {
			t.Error(c.Err())
		}
	})
}

func TestDialObservesItsContextToTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s.admin = func(_ *scriptedQueue, c *nvme.Command, _ []byte) bool {
			return c.Opcode == nvme.AdminSetFeatures && c.Feature() == nvme.FeatureAsyncConfig
		}
		began := time.Now()
		c, err := Dial(ctx, s.settings())
		if took := time.Since(began); took > 2*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Dial took %v: %v", took, err)
		}
		if c != nil {
			c.Abort(ErrClosed)
			<-c.Done()
		}
	})
}

// Some controllers close the connection of a queue that they refuse.
func TestB22ARefusedQueueWhoseConnectionEndsTakesNothingWithIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		s.connect = func(q *scriptedQueue, c nvme.ConnectCommand, _ *nvme.ConnectData) nvme.Status {
			if c.QueueID < 2 {
				return nvme.Success
			}
			q.closing = true
			return nvme.ControllerBusy
		}
		cfg := s.settings()
		cfg.Queues = 4
		c, n, w := s.opened(cfg)
		if c.Info().Queues != 1 {
			t.Errorf("%d queues", c.Info().Queues)
		}
		w.finish(t, n, newRead(0, 512))
	})
}
