package mount_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
	"github.com/csi-mpath/csi-mpath/pkg/mount"
	"github.com/csi-mpath/csi-mpath/pkg/program"
)

func TestAnUnmountThatHangsIsAnErrorUntilItIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, h, r := staged(t, mount.Ext4)
		stage(t, h, r)
		n.Hang(dev)
		begin := time.Now()
		for range 2 {
			if err := h.Unmount(t.Context(), r.Target); !errors.Is(err, mount.ErrHangs) {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Fatalf("it took %v", took)
		}
		for _, c := range n.Calls() {
			if strings.Contains(c, "--lazy") {
				t.Fatal("a device that may come back was unmounted lazily")
			}
		}
		n.Resume(dev)
		synctest.Wait()
		if err := h.Unmount(t.Context(), r.Target); err != nil || n.Ran("umount") != 2 {
			t.Fatalf("%v, umount ran %d times", err, n.Ran("umount"))
		}
	})
}

func TestAPublishedVolumeIsUnmountedWhileItsDeviceHangs(t *testing.T) {
	n, _, h, r := staged(t, mount.Ext4)
	stage(t, h, r)
	pod := filepath.Join(t.TempDir(), "pod")
	if err := h.Bind(t.Context(), r.Target, pod, false); err != nil {
		t.Fatal(err)
	}
	n.Hang(dev)
	if err := h.Unmount(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// democratic-csi#559: the staging path holds the mount of a device that is gone.
func TestMountsOfADeadDeviceMakeRoom(t *testing.T) {
	n, d, h, r := staged(t, mount.Ext4)
	stage(t, h, r)
	n.Remove(dev)
	n.Add("/dev/fake2", "43:2", d)
	r.Device = "/dev/fake2"
	stage(t, h, r)
	if p, err := h.Find(r.Target); err != nil || p.Device != "43:2" {
		t.Fatalf("%+v, %v", p, err)
	}
	if err := h.Unmount(t.Context(), r.Target); err != nil {
		t.Fatal(err)
	}
	if p, err := h.Find(r.Target); err != nil || p != nil {
		t.Fatalf("%+v, %v: the dead one was only covered", p, err)
	}
}

// hpe-storage/csi-driver#416: a pod that writes to the node's own disk.
func TestAMountThatTheKernelDoesNotShowIsNone(t *testing.T) {
	n, _, h, r := staged(t, mount.Ext4)
	n.Script = func(c program.Call) *program.Result {
		if c.Name == "mount" {
			return &program.Result{}
		}
		return nil
	}
	for _, r.ReadOnly = range []bool{false, true} {
		if _, err := h.Stage(t.Context(), r); !errors.Is(err, mount.ErrNotMounted) {
			t.Fatalf("read-only %v: %v", r.ReadOnly, err)
		}
	}
}

func TestAReadOnlyBindThatWasCutShortIsFinished(t *testing.T) {
	n, _, h, r := staged(t, mount.Ext4)
	stage(t, h, r)
	pod := filepath.Join(t.TempDir(), "pod")
	n.Script = func(c program.Call) *program.Result {
		if slices.Contains(c.Args, "remount,bind,ro") {
			return &program.Result{Code: 32}
		}
		return nil
	}
	if err := h.Bind(t.Context(), r.Target, pod, true); err == nil {
		t.Fatal("a bind that may be written to is a success")
	}
	n.Script = nil
	if err := h.Bind(t.Context(), r.Target, pod, true); err != nil {
		t.Fatal(err)
	}
	if p, err := h.Find(pod); err != nil || !p.ReadOnly {
		t.Fatalf("%+v, %v", p, err)
	}
}

func TestTheMountOfADeviceThatIsNoMoreIsTakenAwayLazily(t *testing.T) {
	n, _, h, r := staged(t, mount.XFS)
	stage(t, h, r)
	n.Remove(dev)
	if err := h.Unmount(t.Context(), r.Target); err != nil {
		t.Fatal(err)
	}
	if calls := n.Calls(); !strings.Contains(calls[len(calls)-1], "umount --lazy") {
		t.Fatalf("by %q", calls[len(calls)-1])
	}
}

func TestAMountThatHangsMayStillComeSoItsUnmountIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, h, r := staged(t, mount.Ext4)
		restore := faultpoint.Set(func(name string) {
			if name == "mount.stage.prepared" {
				n.Hang(dev)
			}
		})
		defer restore()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.Stage(ctx, r); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if err := h.Unmount(t.Context(), r.Target); !errors.Is(err, mount.ErrHangs) {
			t.Fatal(err)
		}
		n.Resume(dev)
		synctest.Wait()
		if p, err := h.Find(r.Target); err != nil || p == nil {
			t.Fatalf("the mount did not come: %v, %v", p, err)
		}
		if err := h.Unmount(t.Context(), r.Target); err != nil {
			t.Fatal(err)
		}
	})
}
