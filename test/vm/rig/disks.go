package rig

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Disk is a loop device of so many MiB over a sparse file in memory.
func Disk(t testing.TB, size int) string {
	t.Helper()
	f, err := os.CreateTemp("/dev/shm", "disk")
	Must(t, err)
	t.Cleanup(func() { _ = os.Remove(f.Name()) })
	Must(t, f.Close())
	dev := strings.TrimSpace(Sh(t, fmt.Sprintf("truncate -s %dM %s; losetup -f --show %[2]s", size, f.Name())))
	t.Cleanup(func() { Sh(t, "losetup -d "+dev) })
	return dev
}

// Mounted makes a file system of so many MiB, and mounts it.
func Mounted(t testing.TB, kind string, size int) string {
	t.Helper()
	dev := Disk(t, size)
	dir := t.TempDir()
	Sh(t, fmt.Sprintf("mkfs.%s -q %s; mount %[2]s %s", kind, dev, dir))
	t.Cleanup(func() { Sh(t, "umount "+dir) })
	return dir
}

// VolumeGroup and ThinPool are the names of every test's group, one after the other.
const VolumeGroup, ThinPool = "vg0", "pool0"

// lvmConf is for machines that forget everything anyway: no copies of the metadata,
// no memory that is locked beforehand, which an emulated machine is slow at.
const lvmConf = "backup { backup=0 archive=0 }\nactivation { monitoring=0 reserved_memory=0 reserved_stack=64 }\n"

// Group is a volume group with a thin pool, in a virtual machine.
type Group struct {
	T   testing.TB
	Dev string // its one physical volume
}

// NewGroup makes a pool of so many MiB in a group that has twice that.
func NewGroup(t testing.TB, size int) *Group {
	t.Helper()
	Must(t, os.WriteFile("/etc/lvm/lvm.conf", []byte(lvmConf), 0o644)) //nolint:gosec // as LVM's own
	g := &Group{t, Disk(t, 2*size+64)}
	g.LVM("pvcreate -q " + g.Dev)
	g.LVM("vgcreate -q " + VolumeGroup + " " + g.Dev)
	t.Cleanup(func() { g.LVM("vgremove -q -ff -y " + VolumeGroup) })
	g.LVM(fmt.Sprintf("lvcreate -q -y --type thin-pool -L %dM --poolmetadatasize 4M -c 64k -Zy -n %s %s", size, ThinPool, VolumeGroup))
	return g
}

// LVM runs a command of LVM as an administrator of a machine without udev does.
func (g *Group) LVM(command string) string {
	g.T.Helper()
	name, args, _ := strings.Cut(command, " ")
	return Sh(g.T, fmt.Sprintf("LVM_SUPPRESS_FD_WARNINGS=1 %s --devices %s --config 'devices{scan_lvs=0} activation{udev_sync=0 udev_rules=0}' %s", name, g.Dev, args))
}

// Volumes lists those of the group, but the pool.
func (g *Group) Volumes() []string {
	return strings.Fields(g.LVM("lvs --noheadings -o lv_name -S 'lv_name!=" + ThinPool + "' " + VolumeGroup))
}
