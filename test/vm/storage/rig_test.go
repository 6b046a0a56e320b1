//go:build vm

package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store/directory"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store/lvmthin"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

func TestMain(m *testing.M) {
	// The kernel's iSCSI target looks for a directory that nothing of ours needs.
	os.Exit(kmsg.Main(m, kmsg.Provoked("db_root: cannot open: /etc/target")))
}

// memoryDisk is what a loop device over a file in memory says when it is asked to
// write zeroes; whoever asked writes them himself then.
var memoryDisk = regexp.MustCompile(`operation not supported error, dev loop\d+, sector \d+ op 0x9:\(WRITE_ZEROES\)`)

// disk is a loop device of so many MiB over a sparse file in memory.
func disk(t *testing.T, size int) string {
	t.Helper()
	file := filepath.Join("/dev/shm", strings.ReplaceAll(t.Name(), "/", "-"))
	t.Cleanup(func() { os.Remove(file) })
	dev := strings.TrimSpace(rig.Sh(t, fmt.Sprintf("truncate -s %dM %s; losetup -f --show %[2]s", size, file)))
	t.Cleanup(func() { rig.Sh(t, "losetup -d "+dev) })
	return dev
}

// group is a volume group with a thin pool.
type group struct {
	t   *testing.T
	dev string
}

// vg is the name of every test's volume group, one after the other.
const vg, thin = "vg0", "pool0"

// lvmConf is for machines that forget everything anyway: no copies of the metadata,
// no memory that is locked beforehand, which an emulated machine is slow at.
const lvmConf = "backup { backup=0 archive=0 }\nactivation { monitoring=0 reserved_memory=0 reserved_stack=64 }\n"

// newGroup makes a pool of so many MiB in a group that has twice that.
func newGroup(t *testing.T, size int) *group {
	t.Helper()
	rig.Must(t, os.WriteFile("/etc/lvm/lvm.conf", []byte(lvmConf), 0o644)) //nolint:gosec // as LVM's own
	g := &group{t, disk(t, 2*size+64)}
	g.lvm("pvcreate -q " + g.dev)
	g.lvm("vgcreate -q " + vg + " " + g.dev)
	t.Cleanup(func() { g.lvm("vgremove -q -ff -y " + vg) })
	g.lvm(fmt.Sprintf("lvcreate -q -y --type thin-pool -L %dM --poolmetadatasize 4M -c 64k -Zy -n %s %s", size, thin, vg))
	return g
}

// lvm runs a command of LVM as an administrator of a machine without udev does.
func (g *group) lvm(command string) string {
	g.t.Helper()
	name, args, _ := strings.Cut(command, " ")
	return rig.Sh(g.t, fmt.Sprintf("LVM_SUPPRESS_FD_WARNINGS=1 %s --devices %s --config 'devices{scan_lvs=0} activation{udev_sync=0 udev_rules=0}' %s", name, g.dev, args))
}

func (g *group) config() lvmthin.Config {
	return lvmthin.Config{VolumeGroup: vg, ThinPool: thin, Devices: []string{g.dev}}
}

func (g *group) open(c lvmthin.Config) *lvmthin.Store {
	g.t.Helper()
	s, err := lvmthin.Open(g.t.Context(), c)
	if err != nil {
		g.t.Fatal(err)
	}
	return s
}

// volumes lists those of the store, and what else is not the pool.
func (g *group) volumes() []string {
	return strings.Fields(g.lvm("lvs --noheadings -o lv_name -S 'lv_name!=" + thin + "' " + vg))
}

// mounted makes a file system and mounts it, of so many MiB.
func mounted(t *testing.T, kind string, size int) string {
	t.Helper()
	dev := disk(t, size)
	dir := t.TempDir()
	rig.Sh(t, fmt.Sprintf("mkfs.%s -q %s; mount %[2]s %s", kind, dev, dir))
	t.Cleanup(func() { rig.Sh(t, "umount "+dir) })
	return dir
}

func openDirectory(t *testing.T, path string) *directory.Store {
	t.Helper()
	s, err := directory.Open(directory.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// create makes an object of so many bytes.
func create(t *testing.T, s store.Store, spec store.Spec) store.Object {
	t.Helper()
	o, err := s.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func isNoSpace(err error) bool { return errors.Is(err, backend.ErrNoSpace) }
