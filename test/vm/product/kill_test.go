//go:build vm

package product

import (
	"math/rand/v2"
	"testing"
	"time"

	interop "github.com/csi-mpath/csi-mpath/test/interop/rig"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
	"github.com/csi-mpath/csi-mpath/test/vm/writers"
)

// quiet is how long the load runs without a fault before each.
const quiet = 2 * time.Second

// disturb runs rounds of: a quiet time, then the fault, then back to work. The
// fault returns when the device is served again.
func disturb(t *testing.T, what string, rounds int, v *rig.Volume, l *writers.Load, fault func() error) {
	t.Helper()
	var s stalls
	for range rounds {
		calm := control(t, l, quiet)
		mark, begun := v.Mark(), time.Now()
		must(t, fault())
		served, err := v.Restarted(within(t, patience), mark)
		must(t, err)
		moved(t, l)
		s.add(calm, served.Sub(begun), l.TakeStall().For)
	}
	s.report(t, what)
}

func eachKind(t *testing.T, test func(t *testing.T, kind string)) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) { test(t, kind) })
	}
}

func TestAKilledWorkerLosesNothing(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		kmsg.Watch(t, kmsg.ServerLost, kmsg.ServerSlow)
		x, v := attach(t, 400*mib)
		u := newUse(t, kind, v.Device)
		l := u.load()
		disturb(t, kind+": kill -9 of the worker", kills(t), v, l, v.KillWorker)
		r := u.finish(l, x)
		t.Logf("%d writes, %d reads in %v", r.Writes, r.Reads, r.Elapsed.Round(time.Second))
	})
}

func TestAKilledParentAndWorkerLoseNothing(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost, kmsg.ServerSlow)
	x, v := attach(t, 400*mib)
	u := newUse(t, "raw", v.Device)
	l := u.load()
	disturb(t, "kill -9 of parent and worker, new attach", kills(t), v, l, func() error {
		v.Kill()
		return v.Start()
	})
	u.finish(l, x)
}

func TestAGracefulRestartIsNoError(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost, kmsg.ServerSlow)
	x, v := attach(t, 400*mib)
	u := newUse(t, "ext4", v.Device)
	l := u.load()
	disturb(t, "SIGTERM, new attach", scale(t, "CSI_MPATH_RESTARTS", 2, 10), v, l, func() error {
		if err := v.Stop(); err != nil {
			return err
		}
		return v.Start()
	})
	u.finish(l, x)
}

// The next worker dies, too, at any moment of its start, and inherits what its
// predecessors left in doubt.
func TestAWorkerKilledAgainAndAgainLosesNothing(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost, kmsg.ServerSlow)
	x, v := attach(t, 400*mib)
	u := newUse(t, "raw", v.Device)
	l := u.load()
	calm := control(t, l, quiet)
	rng := rand.New(rand.NewPCG(3, 3))
	begun, rounds := time.Now(), scale(t, "CSI_MPATH_AGAIN", 12, 50)
	var mark int
	for range rounds {
		mark = v.Mark()
		must(t, interop.Until(t.Context(), patience, "a worker", func() bool { return v.KillWorker() == nil }))
		interop.Pause(t.Context(), time.Duration(rng.Int64N(int64(800*time.Millisecond))))
	}
	took := time.Since(begun)
	_, err := v.Restarted(within(t, patience), mark)
	must(t, err)
	moved(t, l)
	t.Logf("%d workers killed in %.1f s: longest operation %.1f s; without a fault %.1f s", rounds, took.Seconds(), l.TakeStall().For.Seconds(), calm.Seconds())
	u.finish(l, x)
}
