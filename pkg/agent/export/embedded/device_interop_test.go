//go:build interop

package embedded

import (
	"runtime"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/test/node"
	"github.com/csi-mpath/csi-mpath/test/probe"
)

// The node is the whole product here, which logs in again and sends again what it
// does not know the fate of. It gives up after a second without a path, and waits
// for its fences when it ends: half a minute.
func TestNoWriteOfAnEvictedDeviceLands(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r := newRig(t, tr)
		s := newStory(r, r.gate(), 0, true)
		v, err := node.Open(within(t), s.evicted, backend.Auth{}, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		p, err := probe.Start(within(t), v.Socket, probe.Options{Size: quarter, Workers: 16, Hot: true})
		if err != nil {
			t.Fatal(err)
		}
		more(t, p, 100)
		open := s.g.shutGate()
		defer open()
		for range 8 {
			<-s.g.waiting
		}
		done := make(chan error, 1)
		go func() {
			err := s.revoke(within(t))
			s.returned.Store(true)
			done <- err
		}()
		for s.x.mayLogin(s.identity, s.evicted.Initiator) {
			runtime.Gosched()
		}
		s.shutOut(s.evicted)
		if s.returned.Load() {
			t.Error("it has returned while writes are held")
		}
		open()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if p.Stop() == nil {
			t.Error("the device of an evicted node fails nothing")
		}
		_ = v.Close() // its fences: nobody lets it in to prove them
		if n := s.late.Load(); n != 0 {
			t.Errorf("%d writes landed after it had returned", n)
		}
		roundTrip(t, s.login(s.stays[0], 0), half, 1)
	})
}
