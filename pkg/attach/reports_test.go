package attach_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
	"github.com/csi-mpath/csi-mpath/pkg/volume"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// What users of other drivers met, over real sessions: test/cases.txt has which
// test is about which report.

// Nothing is asked of units that were not staged: not what they are, and not which
// there are.
func TestOnlyTheUnitThatIsStagedIsAsked(t *testing.T) {
	overBoth(t, func(r *rig) {
		var asked []*serve.Hold
		for n := uint32(2); n <= 50; n++ {
			r.unit(n)
			for _, k := range []serve.Kind{serve.Any, serve.Admin} {
				h, err := r.base.Hold(serve.Match{Kind: k, LUN: &n}, false)
				r.must(err)
				asked = append(asked, h)
			}
		}
		r.raw(1)
		for i, h := range asked {
			if h.Len() > 0 {
				r.Errorf("unit %d was asked something", 2+i/2)
			}
		}
		r.unstageRaw(1)
	})
}

func TestAPortalThatComesLaterJoinsAndIsLeftWithTheOthers(t *testing.T) {
	overBoth(t, func(r *rig) {
		r.portals[1].Kill()
		q := r.rawRequest(1, nil)
		r.must(r.node.Stage(r.Context(), q))
		if m := r.messageOf("v1"); !strings.HasPrefix(m, "1 of 2 paths work") {
			r.Errorf("condition %q", m)
		}
		r.must(r.portals[1].Start())
		r.allPaths("v1")
		if at := r.sessionsAt(); len(at) != 2 {
			r.Errorf("sessions: %v", at)
		}
		r.unstageRaw(1)
		r.noSessions()
	})
}

func TestTheLastUnstageLeavesNoSessionAtAnyPortal(t *testing.T) {
	overBoth(t, func(r *rig) {
		r.listen(2)
		r.unit(2)
		r.raw(1)
		r.raw(2)
		if at := r.sessionsAt(); len(at) != 4 {
			r.Errorf("sessions: %v", at)
		}
		r.unstageRaw(1)
		r.unstageRaw(2)
		r.noSessions()
	})
}

// Paths vanish one by one while a volume is unstaged, between any two of its steps:
// it is gone, or the call says that it is not, and why.
func TestAnUnstageWhosePathsVanishEndsDetachedOrSaysSo(t *testing.T) {
	points := slices.DeleteFunc(slices.Clone(volume.Points), func(p string) bool { return !strings.HasPrefix(p, "volume.unstage.") })
	overBoth(t, func(r *rig) {
		for _, p := range points {
			vanish(r, points[0], p)
			vanish(r, p, p)
		}
	})
}

func vanish(r *rig, first, second string) {
	r.Helper()
	r.raw(1)
	defer faultpoint.Set(func(here string) {
		if here == first {
			r.portals[0].Kill()
		}
		if here == second {
			r.portals[1].Kill()
		}
	})()
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	err := r.node.Unstage(ctx, "v1", r.rawRequest(1, nil).Staging)
	faultpoint.Set(nil)
	if err != nil && !strings.Contains(err.Error(), r.portals[1].Addr()) && !errors.Is(err, context.DeadlineExceeded) {
		r.Errorf("%s, %s: %v does not say why", first, second, err)
	}
	if (err == nil) != (len(r.node.Volumes()) == 0) || err == nil && r.machine.Devices() != 0 {
		r.Errorf("%s, %s: %v, with %d volumes and %d block devices", first, second, err, len(r.node.Volumes()), r.machine.Devices())
	}
	r.revive()
	r.unstageRaw(1)
	if r.machine.Devices() != 0 || len(r.node.Volumes()) != 0 {
		r.Errorf("%s, %s: left: %d block devices, volumes %v", first, second, r.machine.Devices(), r.node.Volumes())
	}
	// A login that was under way was cut, which the target notices by itself.
	r.until("no session", func() bool { return len(r.sessions()) == 0 })
}

// Four of eight paths are lost for a while: the device is the same, I/O goes on,
// and all eight are back.
func TestHalfOfEightPathsComeBackToTheSameDevice(t *testing.T) {
	overBoth(t, func(r *rig) {
		r.listen(6)
		d := r.raw(1)
		for _, p := range r.portals[:4] {
			p.Kill()
		}
		r.until("four paths lost", func() bool { return strings.HasPrefix(r.messageOf("v1"), "4 of 8 paths work") })
		r.put(d, 0, 'a')
		for _, p := range r.portals[:4] {
			r.must(p.Start())
		}
		r.allPaths("v1")
		r.get(d, 0, 'a')
		if r.machine.Disk("v1") != d || r.machine.Devices() != 1 {
			r.Error("it is another device")
		}
		r.unstageRaw(1)
	})
}

// All paths are gone while somebody writes: nothing fails, and it ends when a path
// is back. pkg/datapath has the same for a day.
func TestAWriterWaitsForItsPathsAndFinishes(t *testing.T) {
	overBoth(t, func(r *rig) {
		d := r.raw(1)
		r.kill()
		r.noPath("v1")
		done := make(chan struct{})
		go func() { defer close(done); r.put(d, 4096, 'w') }()
		r.until("the write held", func() bool { return strings.HasSuffix(r.messageOf("v1"), "; 1 requests wait") })
		r.revive()
		<-done
		r.allPaths("v1")
		r.get(d, 4096, 'w')
		if r.machine.Disk("v1") != d {
			r.Error("it is another device")
		}
		r.unstageRaw(1)
	})
}

// Volumes of one target come and go at once, each time with their own bytes, and an
// Unstage that returned has closed its sessions.
func TestVolumesThatComeAndGoKeepTheirBytes(t *testing.T) {
	const volumes, rounds = 4, 5
	overBoth(t, func(r *rig) {
		for n := uint32(2); n <= volumes; n++ {
			r.unit(n)
		}
		var wg sync.WaitGroup
		for n := uint32(1); n <= volumes; n++ {
			wg.Go(func() {
				for i := range rounds {
					d := r.raw(n)
					if i > 0 {
						r.get(d, 0, byte('0'+i-1)+byte(n)*10)
					}
					r.put(d, 0, byte('0'+i)+byte(n)*10)
					r.unstageRaw(n)
				}
			})
		}
		wg.Wait()
		r.noSessions()
		if n := r.machine.Devices(); n != 0 {
			r.Errorf("left: %d block devices", n)
		}
	})
}

// Units of one target are volumes of their own, also when its portals come back.
func TestUnitsOfOneTargetAreNotTakenForEachOther(t *testing.T) {
	overBoth(t, func(r *rig) {
		two, three := r.unit(2), r.unit(3)
		first, second, third := r.raw(1), r.raw(2), r.raw(3)
		r.put(first, 0, '1')
		r.kill()
		r.noPath("v3")
		r.revive()
		for _, v := range []string{"v1", "v2", "v3"} {
			r.allPaths(v)
		}
		r.put(second, 0, '2')
		r.put(third, 0, '3')
		r.get(first, 0, '1')
		r.base.Look(func() {
			if two.View(0, 1)[0] != '2' || three.View(0, 1)[0] != '3' {
				r.Error("a write went to another unit")
			}
		})
		for n := uint32(1); n <= 3; n++ {
			r.unstageRaw(n)
		}
	})
}

// The end of one volume is nothing to another at the same target: no session of it
// is begun anew.
func TestUnstagingOneUnitLeavesTheOthersSessions(t *testing.T) {
	overBoth(t, func(r *rig) {
		r.unit(2)
		r.raw(1)
		d := r.raw(2)
		begun := r.logins()
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
					r.put(d, 0, 'b')
				}
			}
		}()
		r.unstageRaw(1)
		close(stop)
		<-done
		r.get(d, 0, 'b')
		if r.messageOf("v2") != "2 paths work" || r.logins() != begun {
			r.Errorf("%s; %d sessions were begun", r.messageOf("v2"), r.logins()-begun)
		}
		r.unstageRaw(2)
	})
}

// logins are the sessions that were ever begun.
func (r *rig) logins() uint64 {
	if r.nvme != nil {
		return r.nvme.Stats().Connects
	}
	return r.iscsi.Stats().Logins
}

// The target is deleted, then the volume is given up and unstaged: nobody goes on
// calling it.
func TestNobodyCallsATargetThatIsGone(t *testing.T) {
	overBoth(t, func(r *rig) {
		before := runtime.NumGoroutine()
		for n := uint32(2); n <= 4; n++ {
			r.unit(n)
		}
		for n := uint32(1); n <= 4; n++ {
			r.raw(n)
		}
		r.kill()
		for n := uint32(1); n <= 4; n++ {
			q := r.rawRequest(n, nil)
			r.must(r.node.Revoke(r.Context(), q.Volume, "its target was deleted"))
			r.must(r.node.Unstage(r.Context(), q.Volume, q.Staging))
		}
		r.until("everything that would call it ended", func() bool { return runtime.NumGoroutine() <= before })
	})
}

// A unit that the storage shows only now is found by the next call, whatever it
// announced.
func TestAUnitThatCameIsFoundByTheNextStage(t *testing.T) {
	overBoth(t, func(r *rig) {
		r.raw(1)
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		r.want(r.node.Stage(ctx, r.rawRequest(2, nil)), volume.ErrUnavailable)
		r.unit(2)
		r.put(r.raw(2), 0, '2')
		r.unstageRaw(1)
		r.unstageRaw(2)
	})
}

// The process ends when its time is over, with every path dead and I/O waiting,
// which the next process has to answer.
func TestTheEndOfTheProcessDoesNotWaitForDeadPaths(t *testing.T) {
	overBoth(t, func(r *rig) {
		d := r.raw(1)
		r.kill()
		r.noPath("v1")
		done := make(chan error, 1)
		go func() {
			_, err := d.WriteAt(make([]byte, 4096), 0)
			done <- err
		}()
		r.until("the write held", func() bool { return strings.HasSuffix(r.messageOf("v1"), "; 1 requests wait") })
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		err := r.node.Close(ctx)
		r.Logf("closed in %v: %v", time.Since(begin), err)
		<-done
	})
}

// A call that its caller gave up has its volume's turn no more.
func TestAStageThatWasGivenUpHoldsNothing(t *testing.T) {
	overBoth(t, func(r *rig) {
		silent := r.silence()
		ctx, cancel := context.WithCancel(r.Context())
		failed := make(chan error, 1)
		go func() {
			failed <- r.node.Stage(ctx, r.rawRequest(1, func(a *attrs.Attachment) { a.Portals = a.Portals[:1]; a.Portals[0].Address = silent.address }))
		}()
		<-silent.called
		r.want(r.node.Stage(r.Context(), r.rawRequest(1, nil)), volume.ErrBusy)
		cancel()
		if <-failed == nil {
			r.Error("a volume was staged over a portal that says nothing")
		}
		r.raw(1)
		r.unstageRaw(1)
	})
}
