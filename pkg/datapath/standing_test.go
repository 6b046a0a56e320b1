package datapath

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// cut takes all of a rig's paths away, for good.
func (r *rig) cut() {
	for _, p := range r.paths {
		p.set(func() { p.refuse = errCut })
		p.lose(errCut, false)
	}
	synctest.Wait()
}

func TestTheNoPathTimeoutChangesLive(t *testing.T) {
	withDevice(t, 2, nil, func(r *rig) {
		c := newClient(t, r.dev)
		r.cut()
		w := c.write(0, 1)
		time.Sleep(time.Hour)
		r.dev.SetNoPathTimeout(30 * time.Second)
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if c.answered(w) {
			t.Fatal("answered too early")
		}
		r.dev.SetNoPathTimeout(Never)
		time.Sleep(time.Hour)
		synctest.Wait()
		if c.answered(w) {
			t.Fatal("answered although it is to wait for ever")
		}
		r.dev.SetNoPathTimeout(0)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if !c.answered(w) || w.Status != blk.IOError {
			t.Fatalf("answered %t with %v", c.answered(w), w.Status)
		}
	})
}

func TestAFailedDeviceSendsNothingMore(t *testing.T) {
	withDevice(t, 2, nil, func(r *rig) {
		c := newClient(t, r.dev)
		r.cut()
		held := c.write(0, 1)
		synctest.Wait()
		r.dev.Fail()
		synctest.Wait()
		if !c.answered(held) || held.Status == blk.OK {
			t.Fatalf("held: answered %t with %v", c.answered(held), held.Status)
		}
		for _, p := range r.paths {
			p.set(func() { p.refuse = nil; p.auto = true })
		}
		time.Sleep(backoffMax)
		later := c.write(1, 2)
		synctest.Wait()
		if !c.answered(later) || later.Status == blk.OK || r.disk.blocks[0] != 0 || r.disk.blocks[1] != 0 {
			t.Fatalf("later: answered %t with %v, the disk has %v", c.answered(later), later.Status, r.disk.blocks[:2])
		}
	})
}

func TestSettleWaitsForWhatIsUnanswered(t *testing.T) {
	withDevice(t, 1, nil, func(r *rig) {
		c := newClient(t, r.dev)
		r.cut()
		c.write(0, 1)
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
		defer cancel()
		if err := r.dev.Settle(ctx); err == nil || !strings.Contains(err.Error(), "1 requests are unanswered") {
			t.Fatal(err)
		}
		r.dev.Fail()
		if err := r.dev.Settle(r.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRescanWantsAllPathsToAgree(t *testing.T) {
	withDevice(t, 2, nil, func(r *rig) {
		grow := func(p *fakePath) { p.set(func() { p.facts.Limits.Size *= 2 }) }
		was, err := r.dev.Rescan(r.Context())
		if err != nil || was != r.dev.Size() {
			t.Fatal(was, err)
		}
		grow(r.paths[0])
		if _, err := r.dev.Rescan(r.Context()); err == nil || !strings.Contains(err.Error(), "different sizes") {
			t.Fatal(err)
		}
		grow(r.paths[1])
		if size, err := r.dev.Rescan(r.Context()); err != nil || size != 2*was || r.dev.Size() != size {
			t.Fatal(size, err)
		}
		r.cut()
		if _, err := r.dev.Rescan(r.Context()); err == nil {
			t.Fatal("a size without a path")
		}
	})
}
