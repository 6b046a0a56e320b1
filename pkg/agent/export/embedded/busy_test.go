package embedded

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
	"github.com/csi-mpath/csi-mpath/test/node"
)

// over is a context that has ended.
func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// busy is a volume with one write of host 1 that its store holds.
func busy(t *testing.T, tr backend.Transport) (r *rig, e export.Export, open func()) {
	t.Helper()
	r = newRig(t, tr)
	of := r.gate()
	e = r.volume(1, mib)
	a := r.access(1, 1)
	r.ensure(e, a)
	g := of(e.Identity)
	open = g.shutGate()
	t.Cleanup(open)
	r.dial(e, a, 0).Begin(&blk.Command{Op: blk.Write, Len: 4096, Buf: pattern(4096, 1)})
	<-g.waiting
	return r, e, open
}

func TestAStoreThatHangsIsBusyWithAccessRevoked(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r, e, open := busy(t, tr)
		for range 2 { // the second time nothing is left to revoke, and the job still runs
			if _, err := r.x.Ensure(over(), e); !errors.Is(err, backend.ErrBusy) {
				t.Errorf("%v", err)
			}
			r.refused(e, r.access(1, 1))
		}
		other := r.access(2, 1)
		e.Access = []export.Access{other}
		if _, err := r.x.Ensure(over(), e); !errors.Is(err, backend.ErrBusy) {
			t.Errorf("%v", err)
		}
		r.dial(e, other, 0) // who may, may
		open()
		if r.ensure(e, other) {
			t.Error("the repetition changed something")
		}
	})
}

func TestRemoveGoesOnWhereItWasInterrupted(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r, e, open := busy(t, tr)
		if err := r.x.Remove(over(), e.Volume, e.Identity); !errors.Is(err, backend.ErrBusy) {
			t.Errorf("%v", err)
		}
		if all, _ := r.x.Exported(within(t)); len(all) != 1 {
			t.Errorf("it is not listed while it ends: %v", all)
		}
		open()
		if err := r.x.Remove(within(t), e.Volume, e.Identity); err != nil {
			t.Error(err)
		}
		r.ensure(e, r.access(1, 2)) // under the same name
		roundTrip(t, r.dial(e, r.access(1, 2), 0), 0, 1)
	})
}

// written counts the writes that the volume's target has taken.
func (r *rig) written(e export.Export) uint64 {
	if s, ok := r.x.find(e.Identity).srv.(iscsiServer); ok {
		return s.Stats().Writes
	}
	return r.x.find(e.Identity).srv.(nvmeServer).Stats().Writes
}

// queue is more writes than run at a time: some are in the store, which holds
// them, and some wait for their turn.
func (r *rig) queue(g *gated, e export.Export, p *node.Path) (outs []<-chan error) {
	for i := range serve.MaxUnitJobs + 8 {
		outs = append(outs, p.Begin(&blk.Command{Op: blk.Write, Off: uint64(i) * 4096, Len: 4096, Buf: pattern(4096, byte(i))}))
	}
	for r.written(e) < uint64(len(outs)) {
		runtime.Gosched()
	}
	for range serve.MaxUnitJobs {
		<-g.waiting
	}
	return outs
}

func TestQuiesceWaitsForAllThatWasBegun(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r := newRig(t, tr)
		of := r.gate()
		e, a := r.volume(1, mib), r.access(1, 1)
		r.ensure(e, a)
		g := of(e.Identity)
		open := g.shutGate()
		defer open()
		outs := r.queue(g, e, r.dial(e, a, 0))
		pause, err := r.x.find(e.Identity).srv.Pause()
		if err != nil {
			t.Fatal(err)
		}
		g.pass()
		for _, o := range outs[:serve.MaxUnitJobs] {
			if err := <-o; err != nil {
				t.Error(err)
			}
		}
		select {
		case <-pause.Still():
			t.Error("still, with jobs that waited for their turn when it began")
		default:
		}
		pause.Resume()
		if _, err := r.x.Quiesce(over(), e.Identity); !errors.Is(err, backend.ErrBusy) {
			t.Errorf("%v", err)
		}
		open()
		resume, err := r.x.Quiesce(within(t), e.Identity)
		if err != nil {
			t.Fatal(err)
		}
		resume()
		for _, o := range outs[serve.MaxUnitJobs:] {
			if err := <-o; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestWhatIsEndedWhileItWaitsForItsTurnKeepsNobodyWaiting(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r := newRig(t, tr)
		of := r.gate()
		e, a := r.volume(1, mib), r.access(1, 1)
		r.ensure(e, a)
		g := of(e.Identity)
		open := g.shutGate()
		defer open()
		r.queue(g, e, r.dial(e, a, 0))
		pause, err := r.x.find(e.Identity).srv.Pause()
		if err != nil {
			t.Fatal(err)
		}
		_, over, err := r.x.find(e.Identity).srv.grant(nil)
		if err != nil {
			t.Fatal(err)
		}
		open()
		<-over
		<-pause.Still()
	})
}

func TestAWriteOfOneWhoMayOnlyReadNowIsWaitedFor(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r, e, open := busy(t, tr)
		a := r.access(1, 1)
		a.ReadOnly = true
		e.Access = []export.Access{a}
		if _, err := r.x.Ensure(over(), e); !errors.Is(err, backend.ErrBusy) {
			t.Errorf("%v", err)
		}
		open()
		if r.ensure(e, a) {
			t.Error("the repetition changed something")
		}
	})
}

func TestAQuietVolumeIsReadAndNotWritten(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r := newRig(t, tr)
		of := r.gate()
		e, a := r.volume(1, mib), r.access(1, 1)
		r.ensure(e, a)
		p := r.dial(e, a, 0)
		roundTrip(t, p, 0, 1)
		resume, err := r.x.Quiesce(within(t), e.Identity)
		if err != nil {
			t.Fatal(err)
		}
		var quiet atomic.Bool
		quiet.Store(true)
		g := of(e.Identity)
		g.mu.Lock()
		g.landed = func([]byte, uint64) {
			if quiet.Load() {
				t.Error("a write landed")
			}
		}
		g.mu.Unlock()
		outs := []<-chan error{p.Begin(&blk.Command{Op: blk.Write, Len: 4096, Buf: pattern(4096, 9)}),
			p.Begin(&blk.Command{Op: blk.WriteZeroes, Off: 8192, Len: 4096}), p.Begin(&blk.Command{Op: blk.Trim, Off: 16384, Len: 4096})}
		for _, off := range []int64{0, 8192, 16384} { // behind them on the same connection
			got := make([]byte, 4096)
			if err := p.Read(got, off); err != nil || !slices.Equal(got, pattern(64<<10, 1)[off:][:4096]) {
				t.Errorf("%d: %v, or the bytes changed", off, err)
			}
		}
		if err := p.Flush(); err != nil {
			t.Error(err)
		}
		quiet.Store(false)
		resume()
		resume() // once is enough, twice no harm
		for _, o := range outs {
			if err := <-o; err != nil {
				t.Error(err)
			}
		}
		got := make([]byte, 4096)
		if err := p.Read(got, 0); err != nil || !slices.Equal(got, pattern(4096, 9)) {
			t.Errorf("%v, or the bytes of before", err)
		}
	})
}

func TestANodeThatIsEvictedFromAQuietVolumeWritesNothing(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r := newRig(t, tr)
		of := r.gate()
		e, a := r.volume(1, mib), r.access(1, 1)
		r.ensure(e, a)
		p := r.dial(e, a, 0)
		resume, err := r.x.Quiesce(within(t), e.Identity)
		if err != nil {
			t.Fatal(err)
		}
		g := of(e.Identity)
		g.mu.Lock()
		g.landed = func([]byte, uint64) { t.Error("a write landed") }
		g.mu.Unlock()
		out := p.Begin(&blk.Command{Op: blk.Write, Len: 4096, Buf: pattern(4096, 9)})
		if err := p.Read(make([]byte, 512), 0); err != nil { // the write is there, too
			t.Fatal(err)
		}
		r.ensure(e)
		if err := <-out; !errors.Is(err, node.ErrLost) {
			t.Errorf("%v", err)
		}
		resume()
		r.ensure(e)
	})
}

func TestWhatIsQuietOrRemovedIsDurable(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r := newRig(t, tr)
		of := r.gate()
		e, a := r.volume(1, mib), r.access(1, 1)
		r.ensure(e, a)
		g, p := of(e.Identity), r.dial(e, a, 0)
		if err := p.Write(pattern(4096, 1), 0); err != nil {
			t.Fatal(err)
		}
		resume, err := r.x.Quiesce(within(t), e.Identity)
		if err != nil {
			t.Fatal(err)
		}
		g.durable(t)
		resume()
		if err := p.Write(pattern(4096, 2), 0); err != nil {
			t.Fatal(err)
		}
		if err := r.x.Remove(within(t), e.Volume, e.Identity); err != nil {
			t.Fatal(err)
		}
		g.durable(t)
	})
}

func TestAVolumeWhoseStoreCannotFlushIsNotQuietAndGoesOn(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r := newRig(t, tr)
		of := r.gate()
		e, a := r.volume(1, mib), r.access(1, 1)
		r.ensure(e, a)
		g, broken := of(e.Identity), errors.New("the disk is broken")
		g.mu.Lock()
		g.fail = broken
		g.mu.Unlock()
		if _, err := r.x.Quiesce(within(t), e.Identity); !errors.Is(err, broken) {
			t.Errorf("%v", err)
		}
		g.mu.Lock()
		g.fail = nil
		g.mu.Unlock()
		roundTrip(t, r.dial(e, a, 0), 0, 1)
	})
}

func TestAVolumeThatIsNotServedIsQuiet(t *testing.T) {
	r := newRig(t, backend.ISCSI)
	resume, err := r.x.Quiesce(within(t), r.volume(1, mib).Identity)
	if err != nil {
		t.Fatal(err)
	}
	resume()
}

func TestManyVolumesComeAndGoAtOnce(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r := newRig(t, tr)
		var wg sync.WaitGroup
		for i := range 20 {
			e := r.volume(i, mib)
			wg.Go(func() {
				a := r.access(i, 1)
				for range 3 {
					r.ensure(e, a)
					_, _ = r.x.Exported(context.Background())
					_, _ = r.x.Sessions(context.Background())
					roundTrip(t, r.dial(e, a, i%2), 0, byte(i))
					if err := r.x.Remove(within(t), e.Volume, e.Identity); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	})
}
