//go:build interop

package fuseblk

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/nbd/nbdtest"
	"github.com/csi-mpath/csi-mpath/test/child"
)

const diskSize = 512 << 20

func sh(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// scratch is a directory that no mount may be left in.
func scratch(t *testing.T) string {
	dir, err := os.MkdirTemp("", "fb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func attach(t *testing.T, dir string, block uint32) (*Device, *nbdtest.RAM) {
	t.Helper()
	m, err := nbdtest.NewRAM(diskSize, block)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Attach(t.Context(), filepath.Join(dir, "vol.fuse"), m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return d, m
}

func mounted(t *testing.T, dev, dir string) string {
	t.Helper()
	at := filepath.Join(dir, "mnt")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	sh(t, "mount", dev, at)
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	return at
}

func TestFileSystemsOfBothBlockSizesWorkAndWhatIsSyncedIsOnTheDevice(t *testing.T) {
	for _, mkfs := range [][]string{{"mkfs.ext4", "-q"}, {"mkfs.xfs", "-q"}} {
		for _, block := range []uint32{512, 4096} {
			dir := scratch(t)
			d, m := attach(t, dir, block)
			sh(t, mkfs[0], mkfs[1], d.Path())
			at := mounted(t, d.Path(), dir)
			mark := bytes.Repeat([]byte("a mark that is nowhere else "), 1000)
			f, err := os.Create(filepath.Join(at, "f"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err = f.Write(mark); err == nil {
				err = errors.Join(f.Sync(), f.Close())
			}
			if err != nil || !bytes.Contains(m.Bytes(), mark[:4000]) {
				t.Fatalf("%v, or what was synced is not there", err)
			}
			if m.Flushes.Load() == 0 {
				t.Fatal("a sync was no flush")
			}
			sh(t, "umount", at)
			if err := d.Detach(t.Context()); err != nil {
				t.Fatal(err)
			}
			if bound(d.index) || m.Lanes.Load() != 0 {
				t.Fatal("something is left")
			}
		}
	}
}

func TestAVerifyingLoadFindsNoDifference(t *testing.T) {
	dir := scratch(t)
	d, _ := attach(t, dir, 512)
	sh(t, "fio", "--name=load", "--filename="+d.Path(), "--direct=1", "--ioengine=libaio", "--rw=randrw", "--bssplit=512/30:4k/40:64k/20:1m/10", "--bs_unaligned=0",
		"--iodepth=32", "--size=256m", "--io_size=256m", "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--serialize_overlap=1", "--group_reporting")
}

func TestADiscardReadsAsZeroes(t *testing.T) {
	dir := scratch(t)
	d, m := attach(t, dir, 512)
	for i := range m.Bytes()[:8<<20] {
		m.Bytes()[i] = 0xff
	}
	sh(t, "blkdiscard", "--length", "4M", d.Path())
	sh(t, "blkdiscard", "--zeroout", "--offset", "4M", "--length", "1M", d.Path())
	if b := m.Bytes(); !bytes.Equal(b[:5<<20], make([]byte, 5<<20)) || b[5<<20] != 0xff {
		t.Fatal("the device differs")
	}
}

func TestAMountedFileSystemGrows(t *testing.T) {
	dir := scratch(t)
	d, m := attach(t, dir, 4096)
	i := m.Info()
	i.Size = 400 << 20
	m.Set(i)
	if err := d.Resize(t.Context()); err != nil {
		t.Fatal(err)
	}
	sh(t, "mkfs.xfs", "-q", "-f", d.Path())
	at := mounted(t, d.Path(), dir)
	i.Size = diskSize
	m.Set(i)
	if err := d.Resize(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, "blockdev", "--getsize64", d.Path()); got != "536870912" {
		t.Fatalf("%s bytes", got)
	}
	sh(t, "xfs_growfs", at)
	var s unix.Statfs_t
	if err := unix.Statfs(at, &s); err != nil || uint64(s.Frsize)*s.Blocks < 420<<20 {
		t.Fatalf("%v, %d bytes", err, uint64(s.Frsize)*s.Blocks)
	}
}

func TestADeviceInUseIsClosedAllTheSame(t *testing.T) {
	dir := scratch(t)
	d, m := attach(t, dir, 512)
	sh(t, "mkfs.ext4", "-q", d.Path())
	at := mounted(t, d.Path(), dir)
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := d.Detach(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("detached while mounted: %v", err)
	}
	if err := os.WriteFile(filepath.Join(at, "f"), []byte("x"), 0o600); err != nil {
		t.Fatalf("it works no more: %v", err)
	}
	if err := d.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(at, 0); err != nil {
		t.Fatal(err)
	}
	if err := released(t.Context(), d.index); err != nil || m.Lanes.Load() != 0 {
		t.Fatal(err)
	}
}

// The device of a process that was killed: its file system is dead, and its place
// is free again.
func TestWhatAKilledProcessLeftIsTakenAway(t *testing.T) {
	if dir := os.Getenv("FUSEBLK_SERVE"); dir != "" {
		d, _ := attach(t, dir, 512)
		if err := os.WriteFile(filepath.Join(dir, "ready.tmp"), []byte(d.Path()), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = os.Rename(filepath.Join(dir, "ready.tmp"), filepath.Join(dir, "ready"))
		select {}
	}
	dir := scratch(t)
	c, err := child.Start(child.Options{Env: []string{"FUSEBLK_SERVE=" + dir}}, os.Args[0], "-test.run=^"+t.Name()+"$")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Kill()
	var dev []byte
	for tick := time.NewTicker(10 * time.Millisecond); len(dev) == 0 && c.Alive(); <-tick.C {
		dev, _ = os.ReadFile(filepath.Join(dir, "ready"))
	}
	sh(t, "mkfs.ext4", "-q", string(dev))
	at := mounted(t, string(dev), dir)
	c.Kill()
	<-c.Done()
	d, _ := attach(t, dir, 512)
	sh(t, "mkfs.xfs", "-q", d.Path())
	if _, err := os.ReadDir(at); err == nil {
		t.Log("the old root directory is still in memory")
	}
	if err := unix.Unmount(at, 0); err != nil {
		t.Fatal(err)
	}
	if err := d.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	index, err := strconv.Atoi(strings.TrimPrefix(string(dev), "/dev/loop"))
	if err != nil {
		t.Fatal(err)
	}
	if err := released(t.Context(), index); err != nil {
		t.Fatal(err)
	}
}
