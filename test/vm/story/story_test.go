//go:build vm

package story

import (
	"os"
	"regexp"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/test/cluster"
	"github.com/csi-mpath/csi-mpath/test/host"
	"github.com/csi-mpath/csi-mpath/test/kubelet"
	"github.com/csi-mpath/csi-mpath/test/story"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// dbRoot is where LIO would keep persistent reservations, which Debian has not.
var dbRoot = regexp.MustCompile(`db_root: cannot open`)

func TestMain(m *testing.M) { os.Exit(kmsg.Main(m, dbRoot)) }

// provoked is what the kernel says of what the story does: a path is cut, a node is
// put out while it writes, and its device fails what it still holds.
var provoked = []*regexp.Regexp{
	kmsg.ServerLost, kmsg.ServerSlow, kmsg.KeptOut,
	regexp.MustCompile(`operation not supported error, dev loop\d+, sector \d+ op 0x9:\(WRITE_ZEROES\)`), // a disk in memory
	regexp.MustCompile(`I/O error, dev (nbd\d+|loop\d+)|I/O error on dev|lost (async|sync)? ?page write|EXT4-fs|JBD2|Aborting journal|XFS \(nbd\d+\)|nbd\d+: Other side returned error`),
}

// poolMiB holds a volume, its clone and a snapshot, of which little is written.
const poolMiB = 1536

// overTheKernel is a cluster over a thin pool, LIO and the kernel's NVMe target.
func overTheKernel(t *testing.T) *cluster.Cluster {
	t.Helper()
	kmsg.Watch(t, provoked...)
	g := rig.NewGroup(t, poolMiB)
	t.Cleanup(func() {
		if left := g.Volumes(); !t.Failed() && len(left) > 0 {
			t.Errorf("volumes are left in the pool: %v", left)
		}
	})
	pool := "lvmThin: {volumeGroup: " + rig.VolumeGroup + ", thinPool: " + rig.ThinPool + ", devices: [" + g.Dev + "]}"
	return cluster.Start(t, cluster.Options{Bin: os.Getenv("CSI_MPATH_BIN"), Attach: "nbd", Storage: host.Options{Pool: pool, Kernel: true}})
}

func told(t *testing.T, transport backend.Transport, kind string) {
	t.Helper()
	story.One(t, overTheKernel(t), transport, kind, true)
}

func TestAVolumesLifeOverISCSIWithExt4(t *testing.T)       { told(t, backend.ISCSI, "ext4") }
func TestAVolumesLifeOverISCSIWithXFS(t *testing.T)        { told(t, backend.ISCSI, "xfs") }
func TestAVolumesLifeOverISCSIAsABlockDevice(t *testing.T) { told(t, backend.ISCSI, kubelet.Raw) }
func TestAVolumesLifeOverNVMeWithExt4(t *testing.T)        { told(t, backend.NVMe, "ext4") }
func TestAVolumesLifeOverNVMeWithXFS(t *testing.T)         { told(t, backend.NVMe, "xfs") }
func TestAVolumesLifeOverNVMeAsABlockDevice(t *testing.T)  { told(t, backend.NVMe, kubelet.Raw) }
