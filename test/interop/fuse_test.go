//go:build interop

package interop

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/mount"
	"github.com/csi-mpath/csi-mpath/test/child"
	"github.com/csi-mpath/csi-mpath/test/interop/rig"
)

var loopDevice = regexp.MustCompile(`/dev/loop[0-9]+`)

// blockDevice is where a rig's volume is attached over FUSE.
func blockDevice(t *testing.T, r *rig.Rig) (dev string) {
	t.Helper()
	must(t, rig.Until(t.Context(), time.Minute, "a block device", func() bool {
		dev = loopDevice.FindString(r.Output())
		return dev != ""
	}))
	return dev
}

// fileSystem stages the volume, as the node plugin does.
func fileSystem(t *testing.T, r *rig.Rig, fsType string) (*mount.Host, string) {
	t.Helper()
	h, at := mount.New(), filepath.Join(r.Dir, "staged")
	rep, err := h.Stage(t.Context(), mount.Request{Volume: "vol", Device: blockDevice(t, r), Target: at, FSType: fsType, Blank: true})
	must(t, err)
	if !rep.Formatted {
		t.Fatalf("%+v", rep)
	}
	t.Cleanup(func() { _ = h.Unmount(context.WithoutCancel(t.Context()), at) })
	return h, at
}

// A file system over FUSE, for each protocol and type, loses paths under load.
func TestAFileSystemOverFUSESurvivesPathLoss(t *testing.T) {
	overBoth(t, func(t *testing.T, opt rig.Options) {
		for _, fsType := range []string{mount.Ext4, mount.XFS} {
			opt.Size, opt.Args = 512*mib, []string{"--device=auto", "--attach=fuse"}
			r := start(t, opt)
			h, at := fileSystem(t, r, fsType)
			f, err := child.Start(child.Options{}, "fio", "--name=load", "--directory="+at, "--rw=randrw", "--bs=4k", "--iodepth=8", "--ioengine=libaio",
				"--direct=1", "--size=32m", "--numjobs=2", "--verify=crc32c", "--verify_backlog=128", "--verify_fatal=1", "--verify_state_save=0",
				"--serialize_overlap=1", "--time_based", "--runtime=5s")
			must(t, err)
			defer f.Kill()
			rig.Pause(t.Context(), time.Second)
			r.Paths[0].Kill()
			must(t, r.WaitDown(t.Context(), r.Paths[0]))
			must(t, r.Paths[0].Revive(t.Context()))
			must(t, r.WaitUp(t.Context(), 2))
			must(t, f.Wait())
			dev := blockDevice(t, r)
			must(t, h.Unmount(t.Context(), at))
			must(t, r.Detach())
			if _, err := os.Stat("/sys/block/" + filepath.Base(dev) + "/loop"); !os.IsNotExist(err) {
				t.Fatalf("%s is still there (%v)", dev, err)
			}
		}
	})
}

// The end of the process is the end of its device, and a file system on it does
// not hold it up.
func TestADeviceOverFUSEEndsWithItsProcess(t *testing.T) {
	r := start(t, rig.Options{Own: true, Size: 512 * mib, Args: []string{"--device=auto", "--attach=fuse", "--shutdown-timeout=10s"}})
	h, at := fileSystem(t, r, mount.Ext4)
	if err := r.Detach(); err == nil {
		t.Fatal("a device in use was given up without a word")
	}
	must(t, h.Unmount(t.Context(), at))
	must(t, r.Attach(t.Context()))
	rep, err := h.Stage(t.Context(), mount.Request{Volume: "vol", Device: blockDevice(t, r), Target: at, FSType: mount.Ext4})
	must(t, err)
	if rep.Formatted {
		t.Fatal("it was formatted again")
	}
	must(t, h.Unmount(t.Context(), at))
}
