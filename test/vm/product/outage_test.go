//go:build vm

package product

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/test/faultproxy"
	interop "github.com/csi-mpath/csi-mpath/test/interop/rig"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// outage is a span without any path, under load; between happens in its middle.
func outage(t *testing.T, d time.Duration, begin, between, end func(x *rig.Targets, v *rig.Volume) error, allow ...*regexp.Regexp) {
	t.Helper()
	kmsg.Watch(t, append(allow, kmsg.ServerSlow, kmsg.HungTask)...)
	x, v := attach(t, 400*mib)
	u := newUse(t, "ext4", v.Device)
	l := u.load()
	calm := control(t, l, quiet)
	must(t, begin(x, v))
	interop.Pause(t.Context(), d/2)
	if between != nil {
		must(t, between(x, v))
	}
	interop.Pause(t.Context(), d/2)
	back := time.Now()
	must(t, end(x, v))
	moved(t, l)
	s := l.TakeStall()
	t.Logf("away for %v: longest operation %.1f s, all at work %.1f s after the return; without a fault %.1f s",
		d, s.For.Seconds(), time.Since(back).Seconds(), calm.Seconds())
	u.finish(l, x)
}

func killPaths(x *rig.Targets, _ *rig.Volume) error {
	for _, p := range x.Paths {
		p.Kill()
	}
	return nil
}

func revivePaths(x *rig.Targets, _ *rig.Volume) error {
	var errs []error
	for _, p := range x.Paths {
		errs = append(errs, p.Revive(context.Background()))
	}
	return errors.Join(errs...)
}

func away(t *testing.T) time.Duration {
	t.Helper()
	return time.Duration(scale(t, "CSI_MPATH_OUTAGE", 20, 120)) * time.Second
}

func silent(t *testing.T) time.Duration {
	t.Helper()
	return time.Duration(scale(t, "CSI_MPATH_SILENCE", 15, 60)) * time.Second
}

func TestAnOutageOfBothPortalsIsNoError(t *testing.T) {
	outage(t, away(t), killPaths, nil, revivePaths)
}

func TestAWorkerKilledInAnOutageIsNoError(t *testing.T) {
	outage(t, away(t), killPaths, func(_ *rig.Targets, v *rig.Volume) error { return v.KillWorker() }, revivePaths, kmsg.ServerLost)
}

// What the kernel says when it ends a connection is not allowed here.
func TestASilentTargetDoesNotEndTheDevice(t *testing.T) {
	outage(t, silent(t), func(x *rig.Targets, _ *rig.Volume) error {
		kmsg.Say("both targets are stopped")
		return errors.Join(x.Paths[0].Daemon.Freeze(), x.Paths[1].Daemon.Freeze())
	}, nil, func(x *rig.Targets, _ *rig.Volume) error {
		kmsg.Say("both targets go on")
		return errors.Join(x.Paths[0].Daemon.Thaw(), x.Paths[1].Daemon.Thaw())
	})
}

func TestABlackHoleDoesNotEndTheDevice(t *testing.T) {
	outage(t, silent(t), func(x *rig.Targets, _ *rig.Volume) error {
		hole := faultproxy.Fault{Kind: faultproxy.BlackHole}
		return errors.Join(x.Paths[0].Proxy.Now(hole), x.Paths[1].Proxy.Now(hole))
	}, nil, func(x *rig.Targets, _ *rig.Volume) error {
		return errors.Join(x.Paths[0].Proxy.Heal(), x.Paths[1].Proxy.Heal())
	})
}
