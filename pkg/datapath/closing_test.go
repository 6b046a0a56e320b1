package datapath

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/pathsel"
)

// holdingClient keeps answers until Flush, as a connection does.
type holdingClient struct{ held, sent int }

func (c *holdingClient) Complete(*blk.Request) { c.held++ }
func (c *holdingClient) Flush()                { c.sent += c.held; c.held = 0 }

func TestALaneThatGoesBetweenAnAnswerAndItsBatchEndIsStillFlushed(t *testing.T) {
	withDevice(t, 1, nil, func(r *rig) {
		l, err := r.dev.OpenLane(1)
		if err != nil {
			t.Fatal(err)
		}
		c := &holdingClient{}
		l.Submit(&blk.Request{Op: blk.Write, Len: testBlock, Buf: make([]byte, testBlock), Owner: c})
		q := r.paths[0].q
		f := q.take(0)
		lane := f.c.LaneBit()
		q.sink.Complete(f.c)
		l.Close()
		q.sink.BatchEnd(lane)
		if c.sent != 1 {
			t.Fatal("the answer is held for ever: its connection would never end")
		}
	})
}

// hookSelector runs a hook between the runner's look at the lane and the send.
type hookSelector struct {
	pathsel.RoundRobin
	hook func()
}

func (h *hookSelector) Pick(s *pathsel.State, n, avoid uint32) int {
	if f := h.hook; f != nil {
		h.hook = nil
		f()
	}
	return h.RoundRobin.Pick(s, n, avoid)
}

func TestAWriteHeldForAFenceAsItsConnectionGoesIsCancelledAtOnce(t *testing.T) {
	h := &hookSelector{}
	withDevice(t, 2, func(c *Config, _ []*fakePath) { c.Selector = h }, func(r *rig) {
		c, _ := lossOf(r, func(c *client) *blk.Request { return c.write(0, 1) })
		r.paths[0].lose(errCut, true)
		synctest.Wait()
		h.hook = c.lane.Close
		newer := c.write(0, 2)
		synctest.Wait()
		if !c.answered(newer) || newer.Status != blk.Cancelled {
			t.Fatal("it waits for a fence that is none of its business any more")
		}
	})
}

func TestAWriteHeldForAFenceAsTheDeviceClosesIsAnswered(t *testing.T) {
	h := &hookSelector{}
	withDevice(t, 2, func(c *Config, _ []*fakePath) { c.Selector = h }, func(r *rig) {
		c, _ := lossOf(r, func(c *client) *blk.Request { return c.write(0, 1) })
		r.paths[0].lose(errCut, true)
		synctest.Wait()
		r.paths[1].answer(0, good)
		synctest.Wait()
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		h.hook = func() { _ = r.dev.Close(ended) }
		newer := c.write(0, 2)
		synctest.Wait()
		if !c.answered(newer) || newer.Status != blk.Shutdown {
			t.Fatal("it is held for ever")
		}
	})
}

func TestCloseReturnsOnlyWhenNoRunnerTouchesTheLedgerAnyMore(t *testing.T) {
	h := &hookSelector{}
	withDevice(t, 1, func(c *Config, _ []*fakePath) { c.Selector = h }, func(r *rig) {
		c := newClient(t, r.dev)
		h.hook = func() { time.Sleep(100 * time.Millisecond) }
		w := c.make(blk.Write, 0, testBlock, 0)
		go c.lane.Submit(w)
		synctest.Wait()
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = r.dev.Close(ended)
		if !c.answered(w) {
			t.Fatal("a runner is still at work")
		}
	})
}

func TestAWriteOfAClosedConnectionDoesNotLandOverANewersAnsweredOne(t *testing.T) {
	withDevice(t, 2, nil, func(r *rig) {
		old, _ := lossOf(r, func(c *client) *blk.Request { return c.write(0, 1) })
		old.lane.Close() // its client is gone; the write is on path 0's wire
		r.paths[0].set(func() { r.paths[0].room = 1 })
		c := newClient(t, r.dev)
		w := c.write(0, 2)
		synctest.Wait()
		r.paths[1].answer(0, good)
		synctest.Wait()
		if c.answered(w) {
			r.paths[0].answer(0, good)
			if r.disk.blocks[0] != 2 {
				t.Fatalf("block holds %d after write 2 was answered", r.disk.blocks[0])
			}
		}
		r.paths[0].answer(0, good)
		synctest.Wait()
		r.paths[0].answer(0, good)
		r.paths[1].answer(0, good)
		synctest.Wait()
		if !c.answered(w) || r.disk.blocks[0] != 2 {
			t.Fatalf("%v, block holds %d", c.answered(w), r.disk.blocks[0])
		}
	})
}
