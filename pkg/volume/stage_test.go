package volume

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/mount/mounttest"
	"github.com/csi-mpath/csi-mpath/pkg/program"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

func TestAVolumeLivesAndLeavesNothingBehind(t *testing.T) {
	for _, block := range []bool{false, true} {
		r := newRig(t)
		r.s.create("a", 64<<20)
		q := r.request("a")
		p := r.publish("a", "pod")
		q.Block, p.Block = block, block
		r.must(r.Stage(t.Context(), q))
		r.must(r.Publish(t.Context(), p))
		if !r.mountedAt(p.Target) || r.mountedAt(q.Staging) == block {
			t.Errorf("block %t: target mounted %t, staging mounted %t", block, r.mountedAt(p.Target), r.mountedAt(q.Staging))
		}
		r.must(r.Unpublish(t.Context(), "a", p.Target))
		r.must(r.Unstage(t.Context(), "a", q.Staging))
		r.clean()
	}
}

func TestRepeatedCallsSucceed(t *testing.T) {
	r := newRig(t)
	r.stagedVolume("a")
	for range 3 {
		r.must(r.Stage(t.Context(), r.request("a")))
		r.must(r.Publish(t.Context(), r.publish("a", "pod")))
	}
	if n := r.s.node.Ran("mkfs.ext4"); n != 1 {
		t.Errorf("mkfs ran %d times", n)
	}
	for range 3 {
		r.must(r.Unpublish(t.Context(), "a", r.publish("a", "pod").Target))
	}
	for range 3 {
		r.must(r.Unstage(t.Context(), "a", r.request("a").Staging))
	}
	r.clean()
}

func TestOtherArgumentsAreAConflict(t *testing.T) {
	r := newRig(t)
	r.stagedVolume("a")
	for name, change := range map[string]func(*StageRequest){
		"path": func(q *StageRequest) { q.Staging = r.path("elsewhere") }, "block": func(q *StageRequest) { q.Block = true },
		"fs": func(q *StageRequest) { q.FSType = "xfs" }, "read-only": func(q *StageRequest) { q.ReadOnly = true },
		"options": func(q *StageRequest) { q.Options = []string{"noatime"} }, "mode": func(q *StageRequest) { q.Exclusive = false },
	} {
		q := r.request("a")
		change(&q)
		if err := r.Stage(t.Context(), q); err == nil {
			t.Errorf("%s: no error", name)
		} else {
			r.want(err, ErrConflict)
		}
	}
	a := attachment("a", "e1")
	a.LUN = 3
	r.want(r.Stage(t.Context(), r.requestFor("a", a)), ErrConflict)
	r.must(r.Stage(t.Context(), r.request("a")))
}

func TestAStagingPathHasOneVolume(t *testing.T) {
	r := newRig(t)
	r.stagedVolume("a")
	r.s.create("b", 64<<20)
	q := r.request("b")
	q.Staging = r.request("a").Staging
	r.want(r.Stage(t.Context(), q), ErrConflict)
}

func TestInvalidRequestsTouchNothing(t *testing.T) {
	r := newRig(t)
	r.s.create("a", 64<<20)
	for name, change := range map[string]func(*StageRequest){
		"volume": func(q *StageRequest) { q.Volume = "" }, "long volume": func(q *StageRequest) { q.Volume = strings.Repeat("v", 129) },
		"relative": func(q *StageRequest) { q.Staging = "x" }, "detour": func(q *StageRequest) { q.Staging += "/../x" }, "no context": func(q *StageRequest) { q.PublishContext = nil },
		"fs": func(q *StageRequest) { q.FSType = "ntfs" }, "option": func(q *StageRequest) { q.Options = []string{"a,b"} },
		"context":   func(q *StageRequest) { q.VolumeContext = map[string]string{"color": "red"} },
		"transport": func(q *StageRequest) { q.VolumeContext = map[string]string{"transport": "nvme-tcp"} },
		"block fs":  func(q *StageRequest) { q.Block, q.Options = true, []string{"noatime"} },
	} {
		q := r.request("a")
		change(&q)
		err := r.Stage(t.Context(), q)
		if err == nil || strings.Contains(err.Error(), "marked") {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r.want(err, ErrInvalid)
	}
	if r.s.opens > 0 {
		t.Errorf("%d devices were opened", r.s.opens)
	}
	r.clean()
}

// Case D-12: five at once.
func TestFiveAtOnceEndAsOne(t *testing.T) {
	r := newRig(t)
	r.s.create("a", 64<<20)
	errs := make([]error, 5)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = r.Stage(t.Context(), r.request("a")) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			r.want(err, ErrBusy)
		}
	}
	r.must(r.Stage(t.Context(), r.request("a")))
	if n := r.s.node.Ran("mkfs.ext4"); n != 1 {
		t.Errorf("mkfs ran %d times", n)
	}
	for i := range errs {
		wg.Go(func() { errs[i] = r.Unstage(t.Context(), "a", r.request("a").Staging) })
	}
	wg.Wait()
	r.must(r.Unstage(t.Context(), "a", r.request("a").Staging))
	r.clean()
}

// Case D-12: a client with a short deadline, while the file system takes a minute.
func TestAFileSystemIsFinishedWithoutItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.s.create("a", 64<<20)
		r.s.node.Script = slowMkfs(time.Minute)
		short, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		r.want(r.Stage(short, r.request("a")), context.DeadlineExceeded)
		r.want(r.Stage(t.Context(), r.request("a")), ErrBusy)
		time.Sleep(time.Minute)
		r.must(r.Stage(t.Context(), r.request("a")))
		if n := r.s.node.Ran("mkfs.ext4"); n != 1 {
			t.Errorf("mkfs ran %d times", n)
		}
		r.must(r.Close(t.Context()))
	})
}

func slowMkfs(d time.Duration) func(program.Call) *program.Result {
	return func(c program.Call) *program.Result {
		if strings.HasPrefix(c.Name, "mkfs") {
			time.Sleep(d)
		}
		return nil
	}
}

// Case D-12: Unstage in the middle.
func TestUnstageEndsAStageThatNobodyWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		l := r.s.create("a", 64<<20)
		r.s.node.Step = func(string) { // the storage goes away while mkfs writes
			r.s.node.Step = nil
			r.s.change(func() { l.up = 0 })
		}
		short, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_ = r.Stage(short, r.request("a"))
		r.s.change(func() { l.up = 2 })
		for range 5 {
			if r.Unstage(t.Context(), "a", r.request("a").Staging) == nil {
				break
			}
			time.Sleep(time.Second)
		}
		r.clean()
	})
}

// Case D-01: what cannot be read is never formatted (I7).
func TestAnUnreadableVolumeIsNotFormatted(t *testing.T) {
	for _, at := range []int64{0, 4096, 2<<20 - 1} {
		r := newRig(t)
		l := r.s.create("a", 64<<20)
		l.disk.FailReads(at)
		r.want(r.Stage(t.Context(), r.request("a")), ErrUnavailable)
		if n := r.s.node.Ran("mkfs.ext4"); n != 0 {
			t.Errorf("reads fail from %d on: mkfs ran", at)
		}
		l.disk.FailReads(-1)
		r.must(r.Stage(t.Context(), r.request("a")))
	}
}

// Cases D-01, D-05: a clone, or one that was written to, is mounted or refused.
func TestOnlyBlankVolumesAreFormatted(t *testing.T) {
	for content, formatted := range map[backend.Content]bool{backend.ContentBlank: true, backend.ContentUnknown: true,
		backend.ContentCopy: false, backend.ContentWritten: false} {
		r := newRig(t)
		r.s.create("a", 64<<20)
		a := attachment("a", "e1")
		a.Content = content
		err := r.Stage(t.Context(), r.requestFor("a", a))
		if got := r.s.node.Ran("mkfs.ext4") == 1; got != formatted || (err == nil) != formatted {
			t.Errorf("content %s: formatted %t, %v", content, got, err)
		}
		if !formatted {
			r.want(err, ErrState)
			r.clean() // the caller may take the error for "nothing is there"
		}
	}
}

// Case D-03: nothing that holds something is formatted.
func TestAnotherFileSystemIsNotFormatted(t *testing.T) {
	r := newRig(t)
	l := r.s.create("a", 64<<20)
	if _, err := l.disk.WriteAt(mounttest.Ext4(64<<20), 1024); err != nil {
		t.Fatal(err)
	}
	q := r.request("a")
	q.FSType = "xfs"
	r.want(r.Stage(t.Context(), q), ErrState)
	if n := r.s.node.Ran("mkfs.xfs"); n != 0 {
		t.Error("mkfs ran")
	}
	r.clean()
}

// Case D-05: a clone that is larger than its source is grown when it is staged.
func TestAFileSystemFillsItsDevice(t *testing.T) {
	r := newRig(t)
	l := r.s.create("a", 128<<20)
	if _, err := l.disk.WriteAt(mounttest.Ext4(64<<20), 1024); err != nil {
		t.Fatal(err)
	}
	a := attachment("a", "e1")
	a.Content = backend.ContentCopy
	r.must(r.Stage(t.Context(), r.requestFor("a", a)))
	if n := r.s.node.Ran("resize2fs"); n == 0 {
		t.Error("it was not grown")
	}
}

func TestReadOnlyIsEnforcedAtTheDevice(t *testing.T) {
	for name, change := range map[string]func(*StageRequest, *attrs.Attachment){
		"mode": func(q *StageRequest, _ *attrs.Attachment) { q.ReadOnly = true }, "option": func(q *StageRequest, _ *attrs.Attachment) { q.Options = []string{"ro"} },
		"publication": func(q *StageRequest, a *attrs.Attachment) {
			a.ReadOnly = true
			q.PublishContext, _ = attrs.PublishContext(*a)
		},
	} {
		r := newRig(t)
		l := r.s.create("a", 64<<20)
		if _, err := l.disk.WriteAt(mounttest.Ext4(64<<20), 1024); err != nil {
			t.Fatal(err)
		}
		q, a := r.request("a"), attachment("a", "e1")
		change(&q, &a)
		r.must(r.Stage(t.Context(), q))
		if !l.readOnly {
			t.Errorf("%s: the device is writable", name)
		}
		for _, c := range r.s.node.Calls() {
			if strings.HasPrefix(c, "mkfs") || strings.HasPrefix(c, "e2fsck") || strings.HasPrefix(c, "resize2fs") {
				t.Errorf("%s: %s ran", name, c)
			}
		}
	}
}

func TestStorageThatRefusesLeavesNothing(t *testing.T) {
	for _, cause := range []error{ErrDenied, ErrIdentity, ErrUnavailable} {
		r := newRig(t)
		l := r.s.create("a", 64<<20)
		l.deny = fmt.Errorf("%w: portal 10.0.0.1:3260", cause)
		q := r.request("a")
		q.Secrets = Secrets{"password": "marked"}
		r.want(r.Stage(t.Context(), q), cause)
		r.clean()
	}
}

func TestFewerPathsThanMinPathsAreNotEnough(t *testing.T) {
	r := newRig(t)
	l := r.s.create("a", 64<<20)
	a := attachment("a", "e1")
	a.Tunables = map[string]string{"minPaths": "2"}
	r.s.change(func() { l.up = 1 })
	r.want(r.Stage(t.Context(), r.requestFor("a", a)), ErrUnavailable)
	r.clean()
	r.s.change(func() { l.up = 2 })
	r.must(r.Stage(t.Context(), r.requestFor("a", a)))
}

func TestAFormatThatFailsIsClearedUp(t *testing.T) {
	r := newRig(t)
	r.s.create("a", 64<<20)
	r.s.node.Script = func(c program.Call) *program.Result {
		if strings.HasPrefix(c.Name, "mkfs") {
			return &program.Result{Code: 1, Message: "no"}
		}
		return nil
	}
	if err := r.Stage(t.Context(), r.request("a")); err == nil {
		t.Fatal("no error")
	}
	r.clean()
}

// A publication that was revoked meanwhile: the device fails its I/O, goes, and
// comes anew (epochs).
func TestAnotherEpochReplacesTheDevice(t *testing.T) {
	r := newRig(t)
	r.stagedVolume("a")
	r.must(r.Publish(t.Context(), r.publish("a", "pod")))
	old := r.s.kernel["a"]
	r.must(r.Stage(t.Context(), r.requestFor("a", attachment("a", "e2"))))
	now := r.s.kernel["a"]
	if !old.failed || now == old || now.failed {
		t.Errorf("the device of the old epoch failed: %t; there is another: %t, failed %t", old.failed, now != old, now.failed)
	}
	if r.mountedAt(r.publish("a", "pod").Target) {
		t.Error("the revoked device is mounted at a pod still")
	}
	if n := r.s.node.Ran("mkfs.ext4"); n != 1 {
		t.Errorf("mkfs ran %d times", n)
	}
}

func TestOffFencingIsTold(t *testing.T) {
	r := newRig(t)
	r.s.create("a", 64<<20)
	a := attachment("a", "")
	a.Fencing = attrs.FencingNone
	r.must(r.Stage(t.Context(), r.requestFor("a", a)))
	if !slices.Contains(r.kinds(), Unfenced) {
		t.Error("no event")
	}
}

// kinds are the events so far.
func (r *rig) kinds() (all []EventKind) {
	for {
		select {
		case e := <-r.events:
			all = append(all, e.Kind)
		default:
			return all
		}
	}
}
