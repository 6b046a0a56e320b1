package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/mount"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// rig is a node over the twins, and its paths.
type rig struct {
	t      *testing.T
	s      *storage
	dir    string // of state
	pods   string // where staging and target paths are
	boot   string
	events chan Event
	*Node
}

func newRig(t *testing.T) *rig {
	t.Helper()
	base := t.TempDir()
	r := &rig{t: t, s: newStorage(), dir: filepath.Join(base, "state"), pods: filepath.Join(base, "pods"), boot: "boot-1", events: make(chan Event, 1000)}
	if err := os.Mkdir(r.pods, 0o700); err != nil {
		t.Fatal(err)
	}
	r.start()
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	return r
}

// start begins a process.
func (r *rig) start() {
	r.t.Helper()
	n, err := Open(Config{State: r.dir, Boot: r.boot, Devices: r.s, Mounts: mount.Over(r.s.node), Events: func(e Event) {
		select {
		case r.events <- e:
		default:
		}
	}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.Node = n
}

// restart kills the process and begins another, which recovers.
func (r *rig) restart() {
	r.t.Helper()
	r.s.kill()
	r.abandon()
	r.start()
	if err := r.Recover(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// abandon stops what a killed process would not do any more.
func (r *rig) abandon() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.wg.Wait()
}

// reset is abandon, and the end of the machine: what is left are directories.
func (r *rig) reset() {
	r.abandon()
	r.s.reset()
	r.boot += "+1"
	for _, dir := range []string{"a-stage", "a-pod"} {
		r.must(os.RemoveAll(r.path(dir)))
	}
}

func (r *rig) mounts() *mount.Host { return mount.Over(r.s.node) }

func (r *rig) path(name string) string { return filepath.Join(r.pods, name) }

// attachment is that of a volume under an epoch.
func attachment(name, epoch string) attrs.Attachment {
	return attrs.Attachment{Fencing: attrs.FencingBackend, Connection: backend.Connection{Transport: backend.ISCSI, Target: target(name), Epoch: epoch,
		Size: 64 << 20, Content: backend.ContentBlank, WWID: "36001405" + name,
		Portals: []backend.Portal{{Address: "10.0.0.1:3260", Group: 1}, {Address: "10.0.0.2:3260", Group: 2}}}}
}

// request stages a volume as a file system.
func (r *rig) request(name string) StageRequest { return r.requestFor(name, attachment(name, "e1")) }

func (r *rig) requestFor(name string, a attrs.Attachment) StageRequest {
	r.t.Helper()
	c, err := attrs.PublishContext(a)
	if err != nil {
		r.t.Fatal(err)
	}
	return StageRequest{Volume: name, Staging: r.path(name + "-stage"), PublishContext: c, Exclusive: true}
}

func (r *rig) publish(name, pod string) PublishRequest {
	return PublishRequest{Volume: name, Staging: r.path(name + "-stage"), Target: r.path(name + "-" + pod)}
}

// staged creates and stages a volume.
func (r *rig) stagedVolume(name string) *lun {
	r.t.Helper()
	l := r.s.create(name, 64<<20)
	r.must(r.Stage(r.t.Context(), r.request(name)))
	return l
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) want(err, is error) {
	r.t.Helper()
	if !errors.Is(err, is) {
		r.t.Fatalf("error %v, want one that is %q", err, is)
	}
}

// mountedAt reports whether anything is.
func (r *rig) mountedAt(path string) bool {
	r.t.Helper()
	p, err := mount.Over(r.s.node).Find(path)
	r.must(err)
	return p != nil
}

// clean wants that nothing of any volume is left, anywhere.
func (r *rig) clean() {
	r.t.Helper()
	r.s.mu.Lock()
	for v := range r.s.kernel {
		r.t.Errorf("the block device of %s is left", v)
	}
	for name, l := range r.s.luns {
		if l.sessions != 0 {
			r.t.Errorf("%s has %d sessions", name, l.sessions)
		}
	}
	r.s.mu.Unlock()
	for _, dir := range []string{r.dir, r.pods} {
		entries, err := os.ReadDir(dir)
		r.must(err)
		for _, e := range entries {
			if e.Name() != keyFile {
				r.t.Errorf("%s is left in %s", e.Name(), dir)
			}
		}
	}
	if len(r.Volumes()) > 0 {
		r.t.Errorf("volumes %v are known", r.Volumes())
	}
}
