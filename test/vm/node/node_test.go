//go:build vm

package node

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/test/kubelet"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// fio verifies what it wrote, direct, for some seconds and at the end.
const fio = "fio --name=v --filename=%s --size=16m --direct=1 --ioengine=libaio --iodepth=8 --bs=4k --rw=randrw " +
	"--verify=crc32c --verify_backlog=64 --verify_fatal=1 --time_based --runtime=8 --randrepeat=1 --verify_state_save=0 --output-format=terse"

func TestMain(m *testing.M) { os.Exit(kmsg.Main(m, kmsg.ServerLost, kmsg.ServerSlow)) }

func TestAPublishedVolumeSurvivesItsNodePluginAndAPath(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs", kubelet.Raw} {
		t.Run(kind, func(t *testing.T) {
			kmsg.Watch(t, kmsg.ServerLost, kmsg.ServerSlow)
			dir, err := os.MkdirTemp("", "nd")
			rig.Must(t, err)
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			v := kubelet.New(t, dir, kind)
			plugin := rig.StartProduct(t, "node", "--node-name", "n1", "--cluster", "c", "--endpoint", v.Endpoint(), "--state-dir", dir+"/state")
			v.Up()
			load := make(chan error, 1)
			go func() {
				_, err := rig.Try(fmt.Sprintf(fio, v.File()))
				load <- err
			}()
			begun := time.Now()
			rig.Must(t, plugin.KillWorker())
			v.Up() // as the kubelet may at any time: nothing changes
			t.Logf("back %v after the kill", time.Since(begun).Round(100*time.Millisecond))
			v.Portals[0].Kill()
			rig.Must(t, <-load)
			rig.Must(t, v.Portals[0].Start())
			v.Grow(kubelet.Size + 100<<20)
			if total := v.Total(); total <= kubelet.Size {
				t.Errorf("%d bytes after growth", total)
			}
			v.Down()
			if left, _ := filepath.Glob("/sys/block/nbd*/pid"); len(left) > 0 {
				t.Errorf("block devices are left: %v", left)
			}
		})
	}
}
