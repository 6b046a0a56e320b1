package volume

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// kubernetes#100182, #121357: an Unstage that takes minutes, with Stage and Publish
// in between, and a late one afterwards. Calls have turns, and none takes away what
// a later one made.
func TestD13CallsDuringASlowUnstageHaveTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		l := r.stagedVolume("a")
		q, p := r.request("a"), r.publish("a", "pod")
		r.s.change(func() { l.up = 0 })
		var wg sync.WaitGroup
		wg.Go(func() { _ = r.Unstage(t.Context(), "a", q.Staging) })
		synctest.Wait()
		r.want(r.Stage(t.Context(), q), ErrBusy)
		r.want(r.Publish(t.Context(), p), ErrBusy)
		wg.Wait()
		for range 4 { // kubelet comes again and again
			time.Sleep(time.Minute)
			r.want(r.Stage(t.Context(), q), ErrUnavailable)
			r.want(r.Publish(t.Context(), p), ErrState)
			r.want(r.Unstage(t.Context(), "a", q.Staging), ErrUnavailable)
		}
		if r.mountedAt(p.Target) {
			t.Error("what is being unstaged was published")
		}
		r.s.change(func() { l.up = 2 })
		synctest.Wait()
		r.must(r.Stage(t.Context(), q))
		r.must(r.Publish(t.Context(), p))
		r.want(r.Unstage(t.Context(), "a", q.Staging), ErrState) // the late one
		if !r.mountedAt(p.Target) || !r.mountedAt(q.Staging) {
			t.Error("a late Unstage took the new mount away")
		}
		if n := r.s.node.Ran("mkfs.ext4"); n != 1 {
			t.Errorf("mkfs ran %d times", n)
		}
		r.must(r.Unpublish(t.Context(), "a", p.Target))
		r.must(r.Unstage(t.Context(), "a", q.Staging))
		r.clean()
	})
}

// kubernetes#106729: whatever is at the staging path, only the volume's own file
// system is published.
func TestD13WhatIsNotTheVolumesFileSystemIsNotPublished(t *testing.T) {
	for what, put := range map[string]func(r *rig, staging string){
		"nothing":            func(*rig, string) {},
		"an empty directory": func(r *rig, staging string) { r.must(os.Mkdir(staging, 0o700)) },
		"another volume's": func(r *rig, staging string) {
			r.must(r.Stage(r.t.Context(), r.request("b")))
			r.must(os.Mkdir(staging, 0o700))
			r.must(r.mounts().Bind(r.t.Context(), r.request("b").Staging, staging, false))
		},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t)
			r.stagedVolume("a")
			r.s.create("b", 64<<20)
			r.must(r.mounts().Unmount(t.Context(), r.request("a").Staging))
			put(r, r.request("a").Staging)
			r.want(r.Publish(t.Context(), r.publish("a", "pod")), ErrState)
			if r.mountedAt(r.publish("a", "pod").Target) {
				t.Error("it was bound")
			}
		})
	}
}

// The machine was reset: kubelet takes away what it remembers, of which only
// directories are left, and stages anew.
func TestD18AfterARebootEverythingIsTakenAwayAndStagedAgain(t *testing.T) {
	r := newRig(t)
	r.stagedVolume("a")
	p := r.publish("a", "pod")
	r.must(r.Publish(t.Context(), p))
	r.reset()
	r.must(os.Mkdir(r.request("a").Staging, 0o700))
	r.must(os.Mkdir(p.Target, 0o700))
	r.start()
	r.must(r.Recover(t.Context()))
	r.must(r.Unpublish(t.Context(), "a", p.Target))
	r.must(r.Unpublish(t.Context(), "a", p.Target))
	r.must(r.Unstage(t.Context(), "a", r.request("a").Staging))
	r.clean()
	r.must(r.Stage(t.Context(), r.request("a")))
	if n := r.s.node.Ran("mkfs.ext4"); n != 0 {
		t.Errorf("it was formatted again")
	}
}

// A record, or what lies beside it, is of no bytes, half, or somebody's text: the
// volume is named, the others work, and Unstage ends it.
func TestD18FilesThatAreDamagedKeepNobodyFromEnding(t *testing.T) {
	for what, content := range map[string]string{"empty": "", "half": `{"version":1,"bootID":"boot-1","volu`, "text": "restored by hand\n"} {
		for _, file := range []func(dir, volume string) string{recordPath, secretsPath} {
			t.Run(what+" "+filepath.Ext(file("", "a")), func(t *testing.T) {
				r := newRig(t)
				r.s.create("a", 64<<20)
				r.stagedVolume("b")
				q := r.request("a")
				q.Secrets = Secrets{"node.session.auth.password": "marked"}
				r.must(r.Stage(t.Context(), q))
				r.s.kill()
				r.abandon()
				r.must(os.WriteFile(file(r.dir, "a"), []byte(content), 0o600))
				r.start()
				r.must(r.Recover(t.Context()))
				r.want(r.Stage(t.Context(), q), ErrState)
				r.must(r.Publish(t.Context(), r.publish("b", "pod")))
				r.must(r.Unpublish(t.Context(), "a", r.publish("a", "pod").Target))
				r.must(r.Unstage(t.Context(), "a", q.Staging))
				r.must(r.Stage(t.Context(), q))
			})
		}
	}
}

// Report kubernetes#119293: a volume that is being staged is not sick.
func TestAVolumeThatIsBeingStagedIsNotAbnormal(t *testing.T) {
	r := newRig(t)
	q := r.request("a")
	r.s.create("a", 64<<20)
	asked := 0
	r.s.before = func() {
		asked++
		if c, err := r.Condition("a", ""); err != nil || c.Abnormal {
			t.Errorf("%+v, %v", c, err)
		}
		_, err := r.Stats(t.Context(), "a", q.Staging)
		r.want(err, ErrNotFound)
	}
	r.must(r.Stage(t.Context(), q))
	if asked == 0 {
		t.Error("nobody asked meanwhile")
	}
	if s, err := r.Stats(t.Context(), "a", q.Staging); err != nil || s.Abnormal {
		t.Errorf("%+v, %v", s, err)
	}
}
