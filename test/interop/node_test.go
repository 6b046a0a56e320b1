//go:build interop

package interop

import (
	"os"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/test/child"
	"github.com/csi-mpath/csi-mpath/test/interop/rig"
	"github.com/csi-mpath/csi-mpath/test/kubelet"
)

// The node half as the kubelet uses it, with real file systems and mounts over
// FUSE: published, written to while a path is lost, grown, and taken away.
func TestTheNodePluginServesFileSystemsAndRawVolumes(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs", kubelet.Raw} {
		t.Run(kind, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "nd")
			must(t, err)
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			v := kubelet.New(t, dir, kind)
			plugin, err := child.Start(child.Options{}, os.Getenv("CSI_MPATH_BIN"), "node", "--attach", "fuse", "--node-name", "n1", "--cluster", "c",
				"--endpoint", v.Endpoint(), "--state-dir", dir+"/state")
			must(t, err)
			t.Cleanup(func() {
				if err := plugin.Stop(time.Minute); err != nil {
					t.Error(err)
				}
				if t.Failed() {
					t.Log(plugin.Output())
				}
			})
			v.Up()
			f, err := child.Start(child.Options{}, "fio", "--name=load", "--filename="+v.File(), "--rw=randrw", "--bs=4k", "--iodepth=8", "--ioengine=libaio",
				"--direct=1", "--size=16m", "--verify=crc32c", "--verify_backlog=64", "--verify_fatal=1", "--verify_state_save=0", "--time_based", "--runtime=4s")
			must(t, err)
			defer f.Kill()
			rig.Pause(t.Context(), time.Second)
			v.Portals[0].Kill()
			must(t, f.Wait())
			must(t, v.Portals[0].Start())
			if kind != "ext4" { // which grows online in the virtual machine
				v.Grow(kubelet.Size + 100<<20)
				if total := v.Total(); total <= kubelet.Size {
					t.Errorf("%d bytes after growth", total)
				}
			}
			v.Down()
		})
	}
}
