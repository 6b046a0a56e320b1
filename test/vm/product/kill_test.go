//go:build vm

package product

import (
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
	"github.com/csi-mpath/csi-mpath/test/vm/writers"
)

// quiet is how long the load runs without a fault before each.
const quiet = 3 * time.Second

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
	u := newUse(t, "ext4", v.Device)
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
	u := newUse(t, "xfs", v.Device)
	l := u.load()
	disturb(t, "SIGTERM, new attach", scale(t, "CSI_MPATH_RESTARTS", 3, 10), v, l, func() error {
		if err := v.Stop(); err != nil {
			return err
		}
		return v.Start()
	})
	u.finish(l, x)
}
