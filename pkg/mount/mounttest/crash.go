package mounttest

import (
	"context"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
	"github.com/csi-mpath/csi-mpath/pkg/mount"
)

// contextOf is for cleanups, in which the test's own context has ended.
func contextOf(t *testing.T) context.Context { return context.WithoutCancel(t.Context()) }

// crash is what a fault point throws.
type crash struct{ point string }

// cut stages a volume in a process that is killed at a point, and reports whether
// it came there.
func (r *rig) cut(q mount.Request, point string) (there bool) {
	r.Helper()
	restore := faultpoint.Set(func(name string) {
		if name == point {
			panic(crash{point})
		}
	})
	defer restore()
	defer func() {
		if p := recover(); p == any(crash{point}) {
			there = true
		} else if p != nil {
			panic(p)
		}
	}()
	_, err := r.Host().Stage(r.Context(), q)
	r.must(err)
	return false
}

// cutShortAt kills a first stage at a point: the next one ends with a file system
// that holds, and the one after that finds it (case D-12).
func cutShortAt(r *rig, point string) {
	q := r.request(r.Device(deviceSize))
	r.Cleanup(func() { _ = r.Host().Unmount(contextOf(r.T), q.Target) })
	if !r.cut(q, point) && (r.fsType != mount.XFS || point != "mount.format.cleared") {
		r.Fatalf("stage never came to %s", point)
	}
	rep := r.stage(q)
	r.unstage(q)
	q.Blank = false
	again := r.stage(q)
	if again.Formatted || again.Repaired {
		r.Fatalf("after %+v: %+v", rep, again)
	}
	whole := point == "mount.format.cleared" || point == "mount.stage.prepared" || point == "mount.stage.mounted"
	if whole && rep.Formatted {
		r.Fatalf("a complete file system was made again: %+v", rep)
	}
	if !whole && r.fsType == mount.Ext4 && !(rep.Formatted && rep.Resumed) {
		r.Fatalf("the format was not repeated: %+v", rep)
	}
}
