package volume

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatIsUnknownIsUnstaged(t *testing.T) {
	r := newRig(t)
	r.must(r.Unstage(t.Context(), "never", r.path("nowhere")))
	r.must(r.Unpublish(t.Context(), "never", r.path("nowhere")))
	r.stagedVolume("a")
	r.must(r.Unstage(t.Context(), "a", r.path("elsewhere")))
	if !r.mountedAt(r.request("a").Staging) {
		t.Error("a late Unstage of another path took the volume away")
	}
}

func TestAPublishedVolumeIsNotUnstaged(t *testing.T) {
	r := newRig(t)
	r.stagedVolume("a")
	r.must(r.Publish(t.Context(), r.publish("a", "pod")))
	err := r.Unstage(t.Context(), "a", r.request("a").Staging)
	r.want(err, ErrState)
	if !strings.Contains(err.Error(), r.publish("a", "pod").Target) {
		t.Errorf("%v does not say where", err)
	}
	r.must(r.Publish(t.Context(), r.publish("a", "pod2"))) // nothing of it was taken away
}

// Report dell/csm#2010: a flush that fails is an error, and a retry completes.
func TestAFailedFlushIsAnError(t *testing.T) {
	r := newRig(t)
	l := r.stagedVolume("a")
	r.s.change(func() { l.noFlush = errors.New("input/output error") })
	if err := r.Unstage(t.Context(), "a", r.request("a").Staging); err == nil || !strings.Contains(err.Error(), "flush") {
		t.Fatalf("error %v", err)
	}
	if len(r.s.kernel) != 1 || len(r.Volumes()) != 1 {
		t.Error("the volume was given up")
	}
	r.s.change(func() { l.noFlush = nil })
	r.must(r.Unstage(t.Context(), "a", r.request("a").Staging))
	r.clean()
}

func TestUnstageWaitsForFences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		l := r.stagedVolume("a")
		r.s.change(func() { l.inDoubt = 2 })
		r.want(r.Unstage(t.Context(), "a", r.request("a").Staging), context.DeadlineExceeded)
		time.AfterFunc(3*time.Second, func() { r.s.change(func() { l.inDoubt = 0 }) })
		r.must(r.Unstage(t.Context(), "a", r.request("a").Staging))
		r.clean()
	})
}

// Case D-18, claim 5: all paths are dead.
func TestUnstageSaysWhyInTimeAndEndsAfterRevoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		l := r.stagedVolume("a")
		r.s.change(func() { l.up = 0 })
		begin := time.Now()
		err := r.Unstage(t.Context(), "a", r.request("a").Staging)
		r.want(err, ErrUnavailable)
		if took := time.Since(begin); took > unstageWithin {
			t.Errorf("it took %v", took)
		}
		if !strings.Contains(err.Error(), "10.0.0.1:3260 is down (no answer for 5s)") {
			t.Errorf("%v does not name the cause", err)
		}
		r.must(r.Revoke(t.Context(), "a", "an operator gave it up"))
		synctest.Wait() // the unmount that hung ends
		r.must(r.Unstage(t.Context(), "a", r.request("a").Staging))
		r.clean()
	})
}

// Case D-13: Stage after an Unstage that stopped half way.
func TestStageAfterHalfAnUnstage(t *testing.T) {
	r := newRig(t)
	l := r.stagedVolume("a")
	r.s.change(func() { l.noFlush = errors.New("input/output error") })
	if r.Unstage(t.Context(), "a", r.request("a").Staging) == nil {
		t.Fatal("no error")
	}
	r.want(r.Publish(t.Context(), r.publish("a", "pod")), ErrState)
	r.s.change(func() { l.noFlush = nil })
	r.must(r.Stage(t.Context(), r.request("a")))
	r.must(r.Publish(t.Context(), r.publish("a", "pod")))
	if n := r.s.node.Ran("mkfs.ext4"); n != 1 {
		t.Errorf("mkfs ran %d times", n)
	}
}

func TestADeletedTargetIsUnstagedAfterRevoke(t *testing.T) {
	r := newRig(t)
	l := r.stagedVolume("a")
	r.must(r.Revoke(t.Context(), "a", "unpublished"))
	r.s.change(func() { l.up = 0; delete(r.s.luns, target("a")) })
	r.must(r.Unstage(t.Context(), "a", r.request("a").Staging))
	r.clean()
}

// Claim 5, report Seagate/seagate-exos-x-csi#141: the storage took a volume away
// first, and an operator says so, to this process or to the next one.
func TestAVolumeThatAnOperatorGaveUpIsUnstaged(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			l := r.stagedVolume("a")
			r.stagedVolume("b")
			r.s.change(func() { l.up = 0; l.deny = ErrDenied })
			if restarted {
				r.s.kill()
				r.abandon()
				r.start()
				r.want(r.Recover(t.Context()), ErrUnavailable)
			}
			r.want(r.Unstage(t.Context(), "a", r.request("a").Staging), ErrUnavailable)
			r.must(Discard(r.dir, "a"))
			r.want(Discard(r.dir, "never"), ErrNotFound)
			_ = r.Unstage(t.Context(), "a", r.request("a").Staging) // an unmount that hung may end only now
			synctest.Wait()
			r.must(r.Unstage(t.Context(), "a", r.request("a").Staging))
			r.must(r.Unstage(t.Context(), "b", r.request("b").Staging))
			r.clean()
			r.s.change(func() { l.up, l.deny = 2, nil })
			r.must(r.Stage(t.Context(), r.request("a")))
			r.s.change(func() { l.up = 0 })
			r.want(r.Unstage(t.Context(), "a", r.request("a").Staging), ErrUnavailable)
			r.s.change(func() { l.up = 2 })
			synctest.Wait()
			r.must(r.Close(context.Background()))
		})
	}
}
