//go:build vm

package product

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/test/faultproxy"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// fio writes at random and verifies each block's checksum, direct, for some
// seconds and at the end. where is a file or device.
const fio = "fio --name=v --filename=%s --size=16m --direct=1 --ioengine=libaio --iodepth=16 --bs=4k --rw=randrw " +
	"--verify=crc32c --verify_backlog=64 --verify_fatal=1 --time_based --runtime=%d --randrepeat=1 --verify_state_save=0 --fsync=64 --output-format=terse"

// pathsGoAndReturn breaks the paths one after the other, in two ways, each long
// enough to be noticed.
func pathsGoAndReturn(t *testing.T, x *rig.Targets, work func() error) {
	t.Helper()
	l := make(chan error, 1)
	go func() { l <- work() }()
	x.Paths[0].Kill()
	must(t, x.Paths[0].Revive(t.Context()))
	must(t, x.Paths[1].Proxy.Now(faultproxy.Fault{Kind: faultproxy.BlackHole}))
	must(t, <-l) // the whole load, over the path that is left
	must(t, x.Paths[1].Proxy.Heal())
}

func TestFileSystemsAndRawUseSurvivePathLoss(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		kmsg.Watch(t, kmsg.ServerSlow)
		x, v := attach(t, 400*mib)
		u := newUse(t, kind, v.Device)
		where := v.Device
		if u.dir != "" {
			where = u.dir + "/data"
		}
		begun := time.Now()
		pathsGoAndReturn(t, x, func() error {
			_, err := rig.Try(fmt.Sprintf(fio, where, scale(t, "CSI_MPATH_FIO", 3, 60)))
			return err
		})
		t.Logf("%s: fio's blocks were all right after %v", kind, time.Since(begun).Round(time.Second))
		if u.dir != "" {
			u.sh("umount DIR; " + u.fs.check)
		}
	})
}

func TestAFileSystemGrowsWhileItIsMounted(t *testing.T) {
	for _, kind := range kinds[1:] {
		t.Run(kind, func(t *testing.T) {
			kmsg.Watch(t, kmsg.ServerSlow)
			x, v := attach(t, 400*mib)
			u := newUse(t, kind, v.Device)
			l := u.writers(4)
			begun := time.Now()
			must(t, x.Grow(t.Context(), 600*mib, func() error { return l.Progress(within(t, patience)) }))
			must(t, rig.WaitSize(t.Context(), v.Device, 600*mib))
			took := time.Since(begun)
			u.sh(u.fs.grow)
			if free := available(t, u.dir); free < 450*mib {
				t.Errorf("%d MiB free after growth from 400 to 600 MiB", free/mib)
			}
			u.sh("dd if=/dev/zero of=DIR/new bs=1M count=16 conv=fsync status=none")
			moved(t, l)
			u.finish(l, x)
			t.Logf("%s: the device had its new size %v after the array's first daemon knew", kind, took.Round(100*time.Millisecond))
		})
	}
}

func available(t *testing.T, dir string) int64 {
	t.Helper()
	var st unix.Statfs_t
	must(t, unix.Statfs(dir, &st))
	return int64(st.Bavail) * st.Bsize
}

// allocated is how many bytes of the target's file are no hole.
func allocated(t *testing.T, file string) int64 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Stat(file, &st))
	return st.Blocks * 512
}

// at is what the target's file holds.
func at(t *testing.T, file string, off int64, n int) []byte {
	t.Helper()
	f, err := os.Open(file)
	must(t, err)
	defer f.Close()
	b := make([]byte, n)
	_, err = f.ReadAt(b, off)
	must(t, err)
	return b
}

func TestDiscardAndWriteZeroesReachTheTarget(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerSlow)
	x, v := attach(t, 64*mib)
	rig.Sh(t, "tr '\\0' x </dev/zero | dd of="+v.Device+" bs=1M count=16 iflag=fullblock oflag=direct status=none")
	full := allocated(t, x.File())
	if full < 16*mib || !bytes.Equal(at(t, x.File(), 15*mib, mib), bytes.Repeat([]byte{'x'}, mib)) {
		t.Fatalf("the target holds %d bytes after 16 MiB were written", full)
	}
	rig.Sh(t, "blkdiscard -z -o 4M -l 2M "+v.Device)
	if !bytes.Equal(at(t, x.File(), 4*mib, 2*mib), make([]byte, 2*mib)) {
		t.Error("zeroes did not reach the target")
	}
	if at(t, x.File(), 4*mib-1, 1)[0] != 'x' || at(t, x.File(), 6*mib, 1)[0] != 'x' {
		t.Error("the neighbours of the zeroes changed")
	}
	zeroed := allocated(t, x.File())
	rig.Sh(t, "blkdiscard -o 8M -l 8M "+v.Device)
	if left := allocated(t, x.File()); left > zeroed-8*mib {
		t.Errorf("the target holds %d bytes after a discard of 8 MiB, and %d before", left, zeroed)
	}
	if at(t, x.File(), 8*mib-1, 1)[0] != 'x' {
		t.Error("the neighbour of the discard changed")
	}
	t.Logf("allocated: %d MiB written, %d after zeroes, %d after the discard", full/mib, zeroed/mib, allocated(t, x.File())/mib)
}

func TestTrimOfAFileSystemReachesTheTarget(t *testing.T) {
	for _, kind := range kinds[1:] {
		t.Run(kind, func(t *testing.T) {
			kmsg.Watch(t, kmsg.ServerSlow)
			x, v := attach(t, 400*mib)
			u := newUse(t, kind, v.Device)
			u.sh("dd if=/dev/zero of=DIR/big bs=1M count=32 conv=fsync status=none")
			full := allocated(t, x.File())
			// xfs frees the blocks some time later, at the unmount at the latest.
			u.sh("rm DIR/big; umount DIR; " + u.fs.mount + "; fstrim DIR")
			if left := allocated(t, x.File()); left > full-30*mib {
				t.Errorf("the target holds %d MiB after fstrim, and %d before", left/mib, full/mib)
			}
			u.sh("umount DIR; " + u.fs.check)
		})
	}
}
