package mount

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/program"
)

// thisNode is the running node. Nothing here waits for a device but the programs.
type thisNode struct{}

func (thisNode) Run(ctx context.Context, c program.Call) (program.Result, error) {
	return program.Run(ctx, c)
}

// MountInfo reads the whole table at once: the kernel (5.8 on) gives a consistent
// view to whoever reads to the end.
func (thisNode) MountInfo() ([]byte, error) { return os.ReadFile("/proc/self/mountinfo") }

func (thisNode) Statfs(path string, s *unix.Statfs_t) error { return unix.Statfs(path, s) }

func (thisNode) Device(path string) (Device, error) {
	st, err := os.Stat(path)
	if err != nil {
		return Device{}, err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || sys.Mode&unix.S_IFMT != unix.S_IFBLK {
		return Device{}, invalid("%s is no block device", path)
	}
	d := Device{Path: path, Number: fmt.Sprintf("%d:%d", unix.Major(sys.Rdev), unix.Minor(sys.Rdev))}
	d.Size, err = sizeOf(d.Number)
	return d, err
}

func (thisNode) Numbered(number string) (Device, error) {
	size, err := sizeOf(number)
	if err != nil {
		return Device{}, err
	}
	b, err := os.ReadFile(sysfs(number, "uevent"))
	if err != nil {
		return Device{}, err
	}
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVNAME="); ok && filepath.IsLocal(name) {
			return Device{Path: filepath.Join("/dev", name), Number: number, Size: size}, nil
		}
	}
	return Device{}, fmt.Errorf("block device %s has no name in sysfs", number)
}

func sysfs(number, name string) string {
	return filepath.Join("/sys/dev/block", filepath.Base(number), name)
}

// sizeOf is a block device's size in bytes; sysfs counts sectors of 512.
func sizeOf(number string) (uint64, error) {
	b, err := os.ReadFile(sysfs(number, "size"))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 54)
	return n << 9, err
}
