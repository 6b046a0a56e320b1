package volume

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/durable"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
)

// I8: a new process takes over what the old one served.
func TestARestartBringsVolumesBack(t *testing.T) {
	r := newRig(t)
	l := r.s.create("a", 64<<20)
	q := r.request("a")
	q.Secrets = Secrets{"node.session.auth.password": "marked"}
	r.must(r.Stage(t.Context(), q))
	r.must(r.Publish(t.Context(), r.publish("a", "pod")))
	path := r.s.kernel["a"].path
	r.restart()
	if b := r.s.kernel["a"]; b == nil || b.path != path || b.server == nil || l.sessions != 1 {
		t.Fatalf("the block device now: %+v, %d sessions", b, l.sessions)
	}
	if l.lastSecret["node.session.auth.password"] != "marked" {
		t.Error("the next process has no secret")
	}
	r.must(r.Stage(t.Context(), q))
	r.must(r.Publish(t.Context(), r.publish("a", "pod")))
	r.must(r.Unpublish(t.Context(), "a", r.publish("a", "pod").Target))
	r.must(r.Unstage(t.Context(), "a", q.Staging))
	r.clean()
}

func TestAnOrderlyEndLeavesVolumesForTheNextProcess(t *testing.T) {
	r := newRig(t)
	r.stagedVolume("a")
	r.must(r.Close(t.Context()))
	r.want(r.Stage(t.Context(), r.request("a")), ErrUnavailable)
	r.start()
	r.must(r.Recover(t.Context()))
	r.must(r.Unstage(t.Context(), "a", r.request("a").Staging))
	r.clean()
}

func TestARestartWithDeadPathsDoesNotHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		l := r.stagedVolume("a")
		r.stagedVolume("b")
		r.s.kill()
		r.abandon()
		r.s.change(func() { l.up = 0 })
		r.start()
		begin := time.Now()
		err := r.Recover(t.Context())
		r.want(err, ErrUnavailable)
		if took := time.Since(begin); took > recoverWithin || strings.Contains(err.Error(), "volume b") {
			t.Errorf("%v after %v", err, took)
		}
		r.must(r.Stage(t.Context(), r.request("b")))
		r.want(r.Stage(t.Context(), r.request("a")), ErrBusy)
		s, err := r.Stats(t.Context(), "a", r.request("a").Staging)
		if err != nil || !s.Abnormal {
			t.Errorf("%+v, %v", s, err)
		}
		r.want(r.Unstage(t.Context(), "a", r.request("a").Staging), ErrUnavailable)
		r.s.change(func() { l.up = 2 })
		time.Sleep(time.Minute)
		r.must(r.Stage(t.Context(), r.request("a")))
		r.must(r.Unstage(t.Context(), "a", r.request("a").Staging))
		r.must(r.Unstage(t.Context(), "b", r.request("b").Staging))
		r.clean()
		r.must(r.Close(t.Context()))
	})
}

func TestWhatIsOfAnotherBootIsForgotten(t *testing.T) {
	r := newRig(t)
	q := r.request("a")
	r.s.create("a", 64<<20)
	q.Secrets = Secrets{"x": "y"}
	r.must(r.Stage(t.Context(), q))
	r.must(r.Close(t.Context()))
	r.boot, r.s.kernel = "boot-2", map[string]*blockDevice{} // no device is left of it
	r.start()
	r.must(r.Recover(t.Context()))
	if v := r.Volumes(); len(v) > 0 {
		t.Errorf("volumes %v are known", v)
	}
	entries, _ := os.ReadDir(r.dir)
	if len(entries) != 1 {
		t.Errorf("files left: %v", entries)
	}
}

// Case D-18: a state file that was cut to nothing.
func TestADamagedRecordIsToldAndUnstaged(t *testing.T) {
	r := newRig(t)
	r.stagedVolume("a")
	r.stagedVolume("b")
	r.s.kill()
	r.abandon()
	if err := os.Truncate(recordPath(r.dir, "a"), 0); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.must(r.Recover(t.Context()))
	err := r.Stage(t.Context(), r.request("a"))
	r.want(err, ErrState)
	if !strings.Contains(err.Error(), recordPath(r.dir, "a")) {
		t.Errorf("%v does not name the file", err)
	}
	r.must(r.Stage(t.Context(), r.request("b")))
	r.must(r.Unstage(t.Context(), "a", r.request("a").Staging))
	r.must(r.Stage(t.Context(), r.request("a")))
}

func TestSecretsAreInNoFile(t *testing.T) {
	r := newRig(t)
	r.s.create("a", 64<<20)
	q := r.request("a")
	q.Secrets = Secrets{"node.session.auth.password": "marked-secret"}
	r.must(r.Stage(t.Context(), q))
	entries, err := os.ReadDir(r.dir)
	r.must(err)
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(r.dir, e.Name()))
		st, err2 := e.Info()
		if err != nil || err2 != nil || st.Mode().Perm() != 0o600 || bytes.Contains(b, []byte("marked-secret")) {
			t.Errorf("%s: mode %v, %v; or the secret is in it", e.Name(), st.Mode(), err)
		}
	}
	if len(entries) != 3 {
		t.Errorf("files: %v", entries)
	}
}

// crash is a process that ends at a fault point.
type crash struct{ at string }

// crashing runs f until it comes to a point; false: it does not.
func crashing(point string, f func()) (crashed bool) {
	restore := faultpoint.Set(func(name string) {
		if name == point {
			panic(crash{name})
		}
	})
	defer restore()
	defer func() {
		if p := recover(); p != nil {
			if p != any(crash{point}) {
				panic(p)
			}
			crashed = true
		}
	}()
	f()
	return false
}

// verbs are the calls of a volume's life.
func (r *rig) verbs() []func() error {
	q, p := r.request("a"), r.publish("a", "pod")
	q.Secrets = Secrets{"x": "y"}
	ctx := r.t.Context()
	return []func() error{func() error { return r.Stage(ctx, q) }, func() error { return r.Publish(ctx, p) },
		func() error { return r.Unpublish(ctx, "a", p.Target) }, func() error { return r.Unstage(ctx, "a", q.Staging) }}
}

// Claim 3: kill between any two steps, of files too.
func TestAKillBetweenAnyTwoStepsChangesNothing(t *testing.T) {
	points := slices.Concat(Points, durable.Points)
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			r := newRig(t)
			r.s.create("a", 64<<20)
			crashes := 0
			for i := range r.verbs() {
				for crashing(point, func() { r.must(r.verbs()[i]()) }) {
					crashes++
					r.restart()
					r.must(r.verbs()[i]()) // as the caller does, who had no answer
					break
				}
			}
			r.clean()
			if crashes == 0 {
				t.Error("it never came there")
			}
			if n := r.s.node.Ran("mkfs.ext4"); n != 1 {
				t.Errorf("mkfs ran %d times", n)
			}
		})
	}
}

// A kill, and no second call: Unstage alone clears up.
func TestUnstageClearsUpAfterAKillAnywhere(t *testing.T) {
	for _, point := range slices.Concat(Points, durable.Points) {
		t.Run(point, func(t *testing.T) {
			r := newRig(t)
			r.s.create("a", 64<<20)
			for i := range r.verbs() {
				if crashing(point, func() { r.must(r.verbs()[i]()) }) {
					r.restart()
					break
				}
			}
			r.must(r.Unpublish(t.Context(), "a", r.publish("a", "pod").Target))
			r.must(r.Unstage(t.Context(), "a", r.request("a").Staging))
			r.clean()
		})
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte(`{"version":1,"bootID":"b","volume":"v","phase":"staged","use":{"stagingPath":"/x","fsType":"ext4"},"publishContext":{}}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRecord(b)
		if err != nil {
			return
		}
		if err := r.write(t.TempDir()); err != nil {
			t.Errorf("what was read cannot be written: %v", err)
		}
	})
}

func TestRecordsOfOtherVersionsAndVolumesAreRefused(t *testing.T) {
	r := newRig(t)
	r.stagedVolume("a")
	b, err := os.ReadFile(recordPath(r.dir, "a"))
	r.must(err)
	for old, changed := range map[string]string{`"version":1`: `"version":2`, `"phase":"staged"`: `"phase":"x"`, `"volume":"a"`: `"volume":"b"`,
		`"fsType":"ext4"`: `"fsType":"fat"`, `"generation":0}`: `"generation":0,"tunables":{"x":"y"}}`, `"publishContext":{`: `"publishContext":{"x":"y",`} {
		c := strings.Replace(string(b), old, changed, 1)
		if c == string(b) {
			t.Fatalf("no %s in %s", old, b)
		}
		r.must(os.WriteFile(recordPath(r.dir, "a"), []byte(c), 0o600))
		if _, err := readRecord(recordPath(r.dir, "a"), r.boot); err == nil || !strings.Contains(err.Error(), recordPath(r.dir, "a")) {
			t.Errorf("%s: %v", changed, err)
		}
	}
}

func TestAKeyThatIsDamagedIsAnError(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, keyFile), []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openVault(dir); err == nil || !strings.Contains(err.Error(), keyFile) {
		t.Errorf("%v", err)
	}
}

func TestSecretsOfAnotherVolumeAreNotTaken(t *testing.T) {
	dir := t.TempDir()
	v, err := openVault(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.put("a", Secrets{"x": "y"}); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(secretsPath(dir, "a"), secretsPath(dir, "b")); err != nil {
		t.Fatal(err)
	}
	if s, err := v.get("b"); err == nil {
		t.Errorf("taken: %d", len(s))
	}
	if s, err := v.get("a"); err != nil || s != nil {
		t.Errorf("%v, %v", fmt.Sprint(s), err)
	}
}
