//go:build vm

package node

import (
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
	"github.com/csi-mpath/csi-mpath/pkg/mount"
	"github.com/csi-mpath/csi-mpath/pkg/volume"
	"github.com/csi-mpath/csi-mpath/test/kubelet"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// A volume's life once for each place where the node plugin's worker is killed, over
// the kernel's nbd: the call that died is made again, and nothing is lost or left.
func TestACallIsFinishedWhereverTheNodePluginIsKilledWithExt4(t *testing.T) {
	killedAtEachPoint(t, "ext4")
}
func TestACallIsFinishedWhereverTheNodePluginIsKilledWithXFS(t *testing.T) {
	killedAtEachPoint(t, "xfs")
}
func TestACallIsFinishedWhereverTheNodePluginIsKilledAsABlockDevice(t *testing.T) {
	killedAtEachPoint(t, kubelet.Raw)
}

// The same where a file system is made and mounted (I7): what was begun is finished.
func TestAFormatIsFinishedWhereverTheNodePluginIsKilledWithExt4(t *testing.T) {
	killedAt(t, "ext4", mount.Points)
}
func TestAFormatIsFinishedWhereverTheNodePluginIsKilledWithXFS(t *testing.T) {
	killedAt(t, "xfs", mount.Points)
}

// notOf are points that a kind of volume does not come to.
var notOf = map[string][]string{kubelet.Raw: {"volume.stage.mounted", "volume.unstage.unmounted"}}

func killedAtEachPoint(t *testing.T, kind string) { killedAt(t, kind, volume.Points) }

func killedAt(t *testing.T, kind string, points []string) {
	for _, point := range points {
		if slices.Contains(notOf[kind], point) {
			continue
		}
		debug.FreeOSMemory() // the volume before was in this process's memory
		t.Run(point, func(t *testing.T) {
			kmsg.Watch(t, kmsg.ServerLost, kmsg.ServerSlow)
			t.Setenv(faultpoint.Env, point)
			killedOnce(t, kind)
		})
	}
}

func killedOnce(t *testing.T, kind string) {
	dir, err := os.MkdirTemp("", "nd")
	rig.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	v := kubelet.New(t, dir, kind)
	plugin := rig.StartProduct(t, "node", "--node-name", "n1", "--cluster", "c", "--endpoint", v.Endpoint(), "--state-dir", dir+"/state")
	var before []int
	rig.Must(t, rig.Wait("the worker", func() error {
		if before = plugin.Workers(); len(before) == 0 {
			return errors.New("there is none")
		}
		return nil
	}))
	v.Up()
	rig.Sh(t, "dd if=/dev/urandom of="+v.File()+" bs=64k count=16 conv=fsync,notrunc status=none")
	want := sum(t, v)
	v.Grow(kubelet.Size + 100<<20)
	v.Down()
	v.Up()
	if got := sum(t, v); got != want {
		t.Errorf("the volume holds %s, want %s", got, want)
	}
	v.Down()
	if after := plugin.Workers(); slices.Equal(before, after) {
		t.Errorf("the worker %v did not come to this point", before)
	}
	left, _ := filepath.Glob("/sys/block/nbd*/pid")
	records, _ := filepath.Glob(dir + "/state/volumes/*.*")
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	if len(left) > 0 || len(records) > 0 || strings.Contains(string(mounts), dir) {
		t.Errorf("left behind: %v, %v, mounts:\n%s", left, records, mounts)
	}
}

// sum reads what is on the storage, not what the kernel remembers.
func sum(t *testing.T, v *kubelet.Own) string {
	t.Helper()
	return rig.Sh(t, "dd if="+v.File()+" bs=64k count=16 iflag=direct status=none | sha256sum")
}
