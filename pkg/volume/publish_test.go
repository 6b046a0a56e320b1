package volume

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/mount"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// Case D-13: kubelet skips NodeStage after an Unstage error.
func TestNothingButTheVolumeIsPublished(t *testing.T) {
	r := newRig(t)
	r.want(r.Publish(t.Context(), r.publish("a", "pod")), ErrState)
	r.stagedVolume("a")
	r.must(mount.Over(r.s.node).Unmount(t.Context(), r.request("a").Staging))
	r.must(os.Mkdir(r.request("a").Staging, 0o700))
	r.want(r.Publish(t.Context(), r.publish("a", "pod")), ErrState)
	if r.mountedAt(r.publish("a", "pod").Target) {
		t.Error("an empty directory was bound")
	}
	r.must(r.Stage(t.Context(), r.request("a")))
	r.must(r.Publish(t.Context(), r.publish("a", "pod")))
}

func TestPublishingOtherwiseIsAConflict(t *testing.T) {
	r := newRig(t)
	r.stagedVolume("a")
	p := r.publish("a", "pod")
	r.must(r.Publish(t.Context(), p))
	p.ReadOnly = true
	r.want(r.Publish(t.Context(), p), ErrConflict)
	p = r.publish("a", "pod2")
	p.Block = true
	r.want(r.Publish(t.Context(), p), ErrConflict)
	p = r.publish("a", "pod3")
	p.Alone = true
	r.want(r.Publish(t.Context(), p), ErrState)
	r.must(r.Unpublish(t.Context(), "a", r.publish("a", "pod").Target))
	r.must(r.Publish(t.Context(), p))
}

func TestAReadOnlyPublicationIsReadOnly(t *testing.T) {
	r := newRig(t)
	r.stagedVolume("a")
	p := r.publish("a", "pod")
	p.ReadOnly = true
	r.must(r.Publish(t.Context(), p))
	at, err := mount.Over(r.s.node).Find(p.Target)
	if err != nil || at == nil || !at.ReadOnly {
		t.Errorf("mounted: %+v, %v", at, err)
	}
}

// Report kubernetes-csi/csi-driver-iscsi#19: a new pod before the old one is gone.
func TestOnePodsEndLeavesTheOther(t *testing.T) {
	r := newRig(t)
	l := r.stagedVolume("a")
	r.must(r.Publish(t.Context(), r.publish("a", "old")))
	r.must(r.Publish(t.Context(), r.publish("a", "new")))
	r.must(r.Unpublish(t.Context(), "a", r.publish("a", "old").Target))
	if !r.mountedAt(r.publish("a", "new").Target) || l.sessions != 1 {
		t.Errorf("the other pod's is gone, or its sessions: %d", l.sessions)
	}
}

func TestSecretsAreRenewedAtPublish(t *testing.T) {
	r := newRig(t)
	l := r.stagedVolume("a")
	p := r.publish("a", "pod")
	p.Secrets = Secrets{"node.session.auth.password": "second"}
	r.must(r.Publish(t.Context(), p))
	if l.lastSecret["node.session.auth.password"] != "second" {
		t.Error("the device has the old secret")
	}
	r.restart()
	if l.lastSecret["node.session.auth.password"] != "second" {
		t.Error("the next process has the old secret")
	}
}

func TestASecretAboutSomethingElseTakesNothingAway(t *testing.T) {
	r := newRig(t)
	l := r.s.create("a", 64<<20)
	q := r.request("a")
	q.Secrets = Secrets{"node.session.auth.password": "first"}
	r.must(r.Stage(t.Context(), q))
	p := r.publish("a", "pod")
	p.Secrets = Secrets{"other": "x"}
	r.must(r.Publish(t.Context(), p))
	r.must(r.Stage(t.Context(), r.request("a")))
	if l.lastSecret["node.session.auth.password"] != "first" {
		t.Error("the secret of the login is gone")
	}
}

func TestAPublicationOfAnotherEpochFailsTheDevice(t *testing.T) {
	r := newRig(t)
	r.stagedVolume("a")
	p := r.publish("a", "pod")
	p.PublishContext, _ = attrs.PublishContext(attachment("a", "e2"))
	r.want(r.Publish(t.Context(), p), ErrState)
	if !r.s.kernel["a"].failed {
		t.Error("the device works on")
	}
}

func TestTunablesOfTheHighestGenerationWin(t *testing.T) {
	r := newRig(t)
	l := r.stagedVolume("a")
	r.must(r.Tune(t.Context(), "a", 3, map[string]string{"pathTimeout": "7s", "mergeDeadline": "20us"}))
	r.must(r.Tune(t.Context(), "a", 2, map[string]string{"pathTimeout": "2s"}))
	r.must(r.Tune(t.Context(), "a", 4, map[string]string{"mergeDeadline": "30us"}))
	if l.lastTuned.PathTimeout != 7*time.Second || l.lastTuned.MergeDeadline != 30*time.Microsecond {
		t.Errorf("tuned to %+v", l.lastTuned)
	}
	r.want(r.Tune(t.Context(), "a", 5, map[string]string{"lanes": "2", "noPathTimeout": "1s"}), ErrInvalid)
	r.must(r.Tune(t.Context(), "unknown", 1, map[string]string{"pathTimeout": "2s"}))
	r.restart()
	if l.lastTuned.PathTimeout != 7*time.Second || l.lastTuned.MergeDeadline != 30*time.Microsecond {
		t.Errorf("after a restart %+v", l.lastTuned)
	}
}

func TestAMachineThatGoesDownDoesNotWaitForEver(t *testing.T) {
	r := newRig(t)
	l := r.stagedVolume("a")
	r.Shutdown()
	if l.lastTuned.NoPathTimeout != 30*time.Second {
		t.Errorf("noPathTimeout %v", l.lastTuned.NoPathTimeout)
	}
	r.must(r.Tune(t.Context(), "a", 1, map[string]string{"noPathTimeout": "5s"}))
	if l.lastTuned.NoPathTimeout != 5*time.Second {
		t.Errorf("noPathTimeout %v", l.lastTuned.NoPathTimeout)
	}
}

// Case D-21: online growth.
func TestExpandWaitsForAllPaths(t *testing.T) {
	r := newRig(t)
	l := r.stagedVolume("a")
	r.s.change(func() { l.disagree = true })
	_, err := r.Expand(t.Context(), "a", 128<<20)
	r.want(err, ErrUnavailable)
	r.s.change(func() { l.disagree = false })
	_, err = r.Expand(t.Context(), "a", 128<<20)
	r.want(err, ErrUnavailable) // the storage has not grown yet
	r.s.change(func() { l.size = 128 << 20 })
	size, err := r.Expand(t.Context(), "a", 128<<20)
	if err != nil || size != 128<<20 || r.s.node.Ran("resize2fs") == 0 {
		t.Errorf("%d, %v", size, err)
	}
	_, err = r.Expand(t.Context(), "b", 1)
	r.want(err, ErrNotFound)
}

func TestARawVolumeExpands(t *testing.T) {
	r := newRig(t)
	l := r.s.create("a", 64<<20)
	q := r.request("a")
	q.Block = true
	r.must(r.Stage(t.Context(), q))
	r.s.change(func() { l.size = 65 << 20 })
	if size, err := r.Expand(t.Context(), "a", 0); err != nil || size != 65<<20 {
		t.Errorf("%d, %v", size, err)
	}
}

// Case D-20, claim 5: 200 calls on a volume without a path.
func TestStatsOfADeadVolumeAreQuickAndAskNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		l := r.stagedVolume("a")
		before, err := r.Stats(t.Context(), "a", r.request("a").Staging)
		if err != nil || before.Abnormal || before.Usage == nil {
			t.Fatalf("%+v, %v", before, err)
		}
		r.s.change(func() { l.up = 0 })
		begin := time.Now()
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				s, err := r.Stats(t.Context(), "a", r.request("a").Staging)
				if err != nil || !s.Abnormal || s.Usage == nil || !strings.Contains(s.Message, "10.0.0.2:3260 is down") {
					t.Errorf("%+v, %v", s, err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(begin); took > 0 {
			t.Errorf("they took %v", took)
		}
	})
}

func TestStatsAreOfWhatIsThere(t *testing.T) {
	r := newRig(t)
	l := r.stagedVolume("a")
	r.must(r.Publish(t.Context(), r.publish("a", "pod")))
	_, err := r.Stats(t.Context(), "a", r.path("elsewhere"))
	r.want(err, ErrNotFound)
	_, err = r.Stats(t.Context(), "b", r.publish("a", "pod").Target)
	r.want(err, ErrNotFound)
	s, err := r.Stats(t.Context(), "a", r.publish("a", "pod").Target)
	if err != nil || s.Size != 64<<20 || s.Abnormal {
		t.Errorf("%+v, %v", s, err)
	}
	r.s.change(func() { l.up = 1 })
	if s, err = r.Stats(t.Context(), "a", r.publish("a", "pod").Target); err != nil || !s.Abnormal || !strings.HasPrefix(s.Message, "1 of 2 paths work") {
		t.Errorf("one path: %+v, %v", s, err)
	}
	if s, served := r.Status("a"); !served || s.Usable != 1 || len(s.Paths) != 2 {
		t.Errorf("the device says %+v, %v", s, served)
	}
	if s, served := r.Status("b"); served {
		t.Errorf("of a volume that nobody has: %+v", s)
	}
}

// Report democratic-csi#232: a call that hangs keeps nobody else waiting.
func TestOtherVolumesAreNotKeptWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		l := r.stagedVolume("a")
		r.s.change(func() { l.up = 0 })
		var wg sync.WaitGroup
		wg.Go(func() { _ = r.Unstage(t.Context(), "a", r.request("a").Staging) })
		synctest.Wait()
		begin := time.Now()
		r.stagedVolume("b")
		r.want(r.Publish(t.Context(), r.publish("a", "pod")), ErrBusy)
		if took := time.Since(begin); took > 0 {
			t.Errorf("it took %v", took)
		}
		wg.Wait()
		r.s.change(func() { l.up = 2 })
		synctest.Wait()
		r.must(r.Close(context.Background()))
	})
}
