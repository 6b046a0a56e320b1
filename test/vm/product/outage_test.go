//go:build vm

package product

import (
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/test/faultproxy"
	interop "github.com/csi-mpath/csi-mpath/test/interop/rig"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// lost are the records of the kernel that tell of a lost connection of a device.
func lost(t *testing.T, l *kmsg.Log, device string) (out []kmsg.Record) {
	t.Helper()
	all, err := l.Read()
	must(t, err)
	for _, r := range all {
		if strings.Contains(r.Text, filepath.Base(device)+":") && kmsg.ServerLost.MatchString(r.Text) {
			out = append(out, r)
		}
	}
	return out
}

// outage is a span without any path, under load; between happens in its middle.
// Unless that is a kill, the kernel must not lose its connection.
func outage(t *testing.T, d time.Duration, begin, between, end func(x *rig.Targets, v *rig.Volume) error, allow ...*regexp.Regexp) {
	t.Helper()
	t.Parallel() // with its like: they wait most of the time
	kmsg.Watch(t, append(allow, kmsg.ServerSlow, kmsg.HungTask)...)
	x, v := attach(t, 400*mib)
	u := newUse(t, "ext4", v.Device)
	l := u.load()
	calm := control(t, l, quiet)
	log, err := kmsg.Open()
	must(t, err)
	defer log.Close()
	must(t, log.ToEnd())
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
	if found := lost(t, log, v.Device); len(found) > 0 && between == nil {
		t.Errorf("the kernel lost its connection: %v", found)
	}
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
	d := away(t)
	t.Run("product untouched", func(t *testing.T) { outage(t, d, killPaths, nil, revivePaths, kmsg.ServerLost) }) // the other's
	t.Run("worker killed meanwhile", func(t *testing.T) {
		outage(t, d, killPaths, func(_ *rig.Targets, v *rig.Volume) error { return v.KillWorker() }, revivePaths, kmsg.ServerLost)
	})
}

func TestASilentTargetDoesNotEndTheDevice(t *testing.T) {
	d := silent(t)
	t.Run("stopped", func(t *testing.T) {
		outage(t, d, func(x *rig.Targets, _ *rig.Volume) error {
			kmsg.Say("both targets are stopped")
			return errors.Join(x.Paths[0].Daemon.Freeze(), x.Paths[1].Daemon.Freeze())
		}, nil, func(x *rig.Targets, _ *rig.Volume) error {
			kmsg.Say("both targets go on")
			return errors.Join(x.Paths[0].Daemon.Thaw(), x.Paths[1].Daemon.Thaw())
		})
	})
	t.Run("black hole", func(t *testing.T) {
		outage(t, d, func(x *rig.Targets, _ *rig.Volume) error {
			hole := faultproxy.Fault{Kind: faultproxy.BlackHole}
			return errors.Join(x.Paths[0].Proxy.Now(hole), x.Paths[1].Proxy.Now(hole))
		}, nil, func(x *rig.Targets, _ *rig.Volume) error {
			return errors.Join(x.Paths[0].Proxy.Heal(), x.Paths[1].Proxy.Heal())
		})
	})
}
