//go:build vm

package nbdkernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/kernel"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

func old() bool { return os.Getenv("CSI_MPATH_VM_KERNEL") == "6.1" }

func TestTheKernelsClientIsAvailable(t *testing.T) {
	kmsg.Watch(t)
	must(t, kernel.New().Available(within(t, time.Minute)))
}

func TestADeviceIsSetUpAsAskedFor(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost)
	p, k := start(t, nbd.Config{}), kernel.New()
	d := newDisk(t, 64*mib)
	dev := p.attach(k, "t:setup", d)
	for name, want := range map[string]string{
		"queue/scheduler": "[none]", "queue/io_timeout": "2000", "queue/max_sectors_kb": "1024",
		"queue/logical_block_size": "512", "queue/write_cache": "write back", "queue/fua": "1",
		"bdi/max_ratio": "20", "backend": "t:setup", "ro": "0", "size": fmt.Sprint(64 * mib / 512),
	} {
		if got, err := rig.Attribute(dev.Path, name); err != nil || !strings.Contains(got, want) {
			t.Errorf("%s is %q (%v), want %q", name, got, err, want)
		}
	}
	if old() {
		if len(dev.Warnings) != 1 || !strings.Contains(dev.Warnings[0], "bdi/strict_limit") {
			t.Errorf("warnings: %q", dev.Warnings)
		}
	} else if got, err := rig.Attribute(dev.Path, "bdi/strict_limit"); got != "1" || len(dev.Warnings) != 0 {
		t.Errorf("strict_limit is %q (%v), warnings %q", got, err, dev.Warnings)
	}
	s, err := k.Find("t:setup")
	if err != nil || s.Index != dev.Index || s.Size != 64*mib || s.ReadOnly {
		t.Errorf("found %+v, %v", s, err)
	}
	if used, err := k.Connected(within(t, time.Minute), dev.Index); err != nil || !used {
		t.Errorf("connected: %v, %v", used, err)
	}
}

func TestAReadOnlyExportIsAReadOnlyDevice(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost)
	p, k := start(t, nbd.Config{}), kernel.New()
	d := newDisk(t, 8*mib)
	i := d.Info()
	i.Limits.ReadOnly = true
	d.Set(i)
	p.attach(k, "t:ro", d)
	if s, err := k.Find("t:ro"); err != nil || !s.ReadOnly {
		t.Fatalf("%+v, %v", s, err)
	}
}

func TestExt4LivesOnADevice(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost)
	p, k := start(t, nbd.Config{}), kernel.New()
	d := newDisk(t, 256*mib)
	dev, dir := p.attach(k, "t:ext4", d), t.TempDir()
	rig.Sh(t, "mkfs.ext4 -q -E nodiscard "+dev.Path+" && mount "+dev.Path+" "+dir)
	data := bytes.Repeat([]byte("0123456789abcdef"), 2*mib)
	f, err := os.Create(filepath.Join(dir, "file"))
	must(t, err)
	_, err = f.Write(data)
	must(t, err)
	flushes := d.Flushes.Load()
	must(t, f.Sync())
	must(t, f.Close())
	if d.Flushes.Load() == flushes {
		t.Error("an fsync reached the server as no flush")
	}
	rig.Sh(t, "fstrim "+dir)
	if d.trims.Load() == 0 {
		t.Error("fstrim reached the server as no trim")
	}
	rig.Sh(t, "umount "+dir+" && e2fsck -fn "+dev.Path+" && mount "+dev.Path+" "+dir)
	back, err := os.ReadFile(filepath.Join(dir, "file"))
	rig.Sh(t, "umount "+dir)
	must(t, err)
	if !bytes.Equal(back, data) {
		t.Fatal("the file changed")
	}
}

func TestDiscardAndWriteZeroesReachTheServer(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost)
	p, k := start(t, nbd.Config{}), kernel.New()
	d := newDisk(t, 64*mib)
	dev := p.attach(k, "t:discard", d)
	for _, c := range []string{"blkdiscard", "blkdiscard -z"} {
		_, err := direct(t, dev.Path).WriteAt(aligned(t, mib, 'x'), 32*mib)
		must(t, err)
		rig.Sh(t, c+" -o 32M -l 1M "+dev.Path)
		if got := d.Bytes()[32*mib : 33*mib]; !bytes.Equal(got, make([]byte, mib)) {
			t.Errorf("%s: the server's bytes are still there", c)
		}
	}
	if d.trims.Load() == 0 || d.zeroes.Load() == 0 && !old() {
		t.Errorf("%d trims, %d write-zeroes", d.trims.Load(), d.zeroes.Load())
	}
}

func TestAMountedFileSystemGrows(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost)
	p, k := start(t, nbd.Config{}), kernel.New()
	d := newDisk(t, 256*mib)
	i := d.Info()
	i.Size = 96 * mib
	d.Set(i)
	dev, dir := p.attach(k, "t:grow", d), t.TempDir()
	rig.Sh(t, "mkfs.ext4 -q "+dev.Path+" && mount "+dev.Path+" "+dir)
	i.Size = 256 * mib
	d.Set(i)
	must(t, dev.Resize(within(t, time.Minute), i.Size))
	if n, err := rig.Size(dev.Path); err != nil || n != 256*mib {
		t.Errorf("%d bytes, %v", n, err)
	}
	rig.Sh(t, "resize2fs "+dev.Path+"; head -c 150M /dev/zero > "+dir+"/big; sync; umount "+dir+"; e2fsck -fn "+dev.Path)
}

func TestMoreDevicesThanTheModuleHasAreAttachedAtOnce(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost)
	const n = 20 // the module was loaded with 16
	p, k := start(t, nbd.Config{Arena: 32 << 20}), kernel.New()
	disks, devs := make([]*disk, n), make([]*kernel.Device, n)
	var wg sync.WaitGroup
	for i := range n {
		disks[i] = newDisk(t, 4*mib)
		wg.Go(func() {
			var err error
			devs[i], err = k.Attach(within(t, 3*time.Minute), kernel.For(fmt.Sprint("t:many-", i), disks[i].Info()), p.serve(disks[i]))
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	seen := map[int]bool{}
	for i, dev := range devs {
		seen[dev.Index] = true
		_, err := direct(t, dev.Path).WriteAt(aligned(t, 4096, byte(i+1)), 0)
		must(t, err)
	}
	for i, d := range disks {
		if d.Bytes()[0] != byte(i+1) {
			t.Errorf("disk %d has the bytes of %d", i, d.Bytes()[0])
		}
	}
	all, err := k.List()
	if err != nil || len(seen) != n || len(all) != n {
		t.Errorf("%d indices, %d devices (%v), want %d", len(seen), len(all), err, n)
	}
	for _, dev := range devs {
		wg.Go(func() {
			// Still open: the files are closed when the test ends.
			err := dev.Disconnect(within(t, time.Second))
			if err != nil && !errors.Is(err, kernel.ErrInUse) && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestNothingIsLeftOfAHundredDevices(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost)
	p, k := start(t, nbd.Config{}), kernel.New()
	d := newDisk(t, 4*mib)
	once := func() {
		dev, err := k.Attach(within(t, time.Minute), kernel.For("t:loop", d.Info()), p.serve(d))
		must(t, err)
		must(t, dev.Disconnect(within(t, time.Minute)))
		p.ended.Wait()
	}
	once()
	before, goroutines := usage(t), runtime.NumGoroutine()
	begun := time.Now()
	for range 100 {
		once()
	}
	t.Logf("100 times in %v", time.Since(begun).Round(time.Millisecond))
	after := usage(t)
	if after.FDs > before.FDs || runtime.NumGoroutine() > goroutines+2 {
		t.Errorf("before: %+v, %d goroutines; after: %+v, %d", before, goroutines, after, runtime.NumGoroutine())
	}
	if all, err := k.List(); err != nil || len(all) != 0 {
		t.Errorf("left: %+v, %v", all, err)
	}
}

func usage(t *testing.T) rig.Usage {
	u, err := rig.UsageOf(os.Getpid())
	must(t, err)
	return u
}

func TestADeviceThatIsOpenIsDetachedButInUse(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost)
	p, k := start(t, nbd.Config{}), kernel.New()
	dev := p.attach(k, "t:open", newDisk(t, 4*mib))
	f := direct(t, dev.Path)
	err := dev.Disconnect(within(t, time.Second))
	if !errors.Is(err, kernel.ErrInUse) {
		t.Fatalf("got %v", err)
	}
	must(t, f.Close())
	must(t, dev.Disconnect(within(t, time.Minute)))
}
