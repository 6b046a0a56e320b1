//go:build vm

package product

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/kernel"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	interop "github.com/csi-mpath/csi-mpath/test/interop/rig"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// grows is how much memory may come to be held by what no leak is: pools and
// the collector's slack, bytes.
const grows = 48 * mib

// array is a target of ours with many small volumes behind two portals. What
// serves the volumes runs in this process, so that goroutines can be counted.
type array struct {
	*testing.T
	srv     *target.Server
	portals []string
	dir     string
}

func newArray(t *testing.T, volumes int) *array {
	t.Helper()
	a := &array{T: t, dir: t.TempDir()}
	cfg := target.Config{}
	for i := range volumes {
		cfg.LUNs = append(cfg.LUNs, target.LUN{Number: uint32(i), Store: target.NewRAM(mib)})
	}
	var err error
	a.srv, err = target.New(cfg)
	must(t, err)
	t.Cleanup(func() { _ = a.srv.Close() })
	for range 2 {
		p, err := a.srv.Listen("127.0.0.1:0")
		must(t, err)
		a.portals = append(a.portals, p.Addr())
	}
	return a
}

// disk is one volume of an array, attached.
type disk struct {
	dev   *device.Device
	srv   *nbd.Server
	block *device.BlockDevice
}

func (a *array) attach(ctx context.Context, i int) (*disk, error) {
	lun, err := scsi.ParseLUN(fmt.Sprint(i))
	if err != nil {
		return nil, err
	}
	d := &disk{}
	d.dev, err = device.Open(ctx, device.Config{Name: fmt.Sprint("many-", i), Portals: a.portals,
		Protocol: device.ISCSI{Target: a.srv.Name(), LUN: lun, Initiator: "iqn.2026-01.test:host"}, StateDir: a.dir, NoPathTimeout: datapath.Never, Replays: true,
		PathSelector: "round-robin", MinPaths: 2, Events: func(datapath.Event) {}})
	if err != nil {
		return nil, err
	}
	d.srv = nbd.NewServer(map[string]nbd.Export{d.dev.Name(): d.dev}, nbd.Config{}, func(string, error) {})
	if d.block, err = d.dev.AttachKernel(ctx, d.srv, kernel.FreeIndex); err != nil {
		return nil, errors.Join(err, d.srv.Drain(ctx), d.dev.Close(ctx))
	}
	return d, nil
}

// use writes through the device and reads it back.
func (d *disk) use(seed byte) error {
	fd, err := unix.Open(d.block.Path(), unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	buf, err := unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(buf) }()
	for i := range buf {
		buf[i] = seed + byte(i)
	}
	want := slices.Clone(buf)
	if _, err := unix.Pwrite(fd, buf, blockSize); err != nil {
		return err
	}
	clear(buf)
	if _, err := unix.Pread(fd, buf, blockSize); err != nil {
		return err
	}
	if !slices.Equal(buf, want) {
		return fmt.Errorf("%s does not hold what was written", d.block.Path())
	}
	return nil
}

func (d *disk) detach(ctx context.Context) error {
	return errors.Join(d.block.Detach(ctx), d.srv.Drain(ctx), d.dev.Close(ctx))
}

// held is what this process and the kernel hold.
type held struct {
	goroutines, fds, sockets, sessions, devices int
	rss, heap                                   int64
	slab                                        int64 // the kernel's own; told, not judged
}

func (h held) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %d of them sockets, %d sessions, %d devices, %d MiB resident, %d MiB heap, %d MiB of kernel slab",
		h.goroutines, h.fds, h.sockets, h.sessions, h.devices, h.rss/mib, h.heap/mib, h.slab/mib)
}

func (a *array) held() held {
	a.Helper()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u, err := rig.UsageOf(os.Getpid())
	must(a.T, err)
	devices, err := rig.Connected()
	must(a.T, err)
	h := held{goroutines: runtime.NumGoroutine(), fds: u.FDs, sockets: u.Sockets, devices: len(devices), rss: u.RSS, heap: int64(m.HeapAlloc)}
	h.slab, err = rig.Memory("Slab")
	must(a.T, err)
	a.srv.Do(func(m *target.Machine) { h.sessions = m.Sessions(0) })
	return h
}

// unchanged waits until no more is held than before. The runtime's own few
// descriptors and goroutines may come, each once.
func (a *array) unchanged(before held) {
	a.Helper()
	var now held
	err := interop.Until(a.Context(), 30*time.Second, "everything to be given back", func() bool {
		now = a.held()
		return now.goroutines <= before.goroutines && now.fds <= before.fds && now.sockets <= before.sockets &&
			now.sessions == 0 && now.devices == 0 && now.rss < before.rss+grows && now.heap < before.heap+grows
	})
	if err != nil {
		stacks := make([]byte, 64<<10)
		a.Fatalf("%v\nbefore: %v\nafter:  %v\n%s", err, before, now, stacks[:runtime.Stack(stacks, true)])
	}
	a.Logf("before: %v", before)
	a.Logf("after:  %v", now)
	left, err := filepath.Glob(filepath.Join(a.dir, "*"))
	must(a.T, err)
	for _, f := range left {
		if ext := filepath.Ext(f); ext != ".lock" && ext != ".json" {
			a.Errorf("%s is left", f)
		}
	}
}

func (a *array) round(i int) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.Context(), patience)
	defer cancel()
	d, err := a.attach(ctx, 0)
	must(a.T, err)
	must(a.T, d.use(byte(i)))
	must(a.T, d.detach(ctx))
}

func TestAttachAndDetachLeaveNothing(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost)
	a := newArray(t, 1)
	for i := range 3 { // pools and pollers are made at first use
		a.round(i)
	}
	before := a.held()
	begun, rounds := time.Now(), scale(t, "CSI_MPATH_ATTACHES", 20, 500)
	for i := range rounds {
		a.round(i)
	}
	t.Logf("%d times in %v", rounds, time.Since(begun).Round(time.Second))
	a.unchanged(before)
}

func TestManyDevicesAtOnce(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost, kmsg.ServerSlow)
	n := scale(t, "CSI_MPATH_DEVICES", 8, 64)
	a := newArray(t, n)
	a.round(0)
	before := a.held()
	ctx := within(t, 2*patience)
	disks := make([]*disk, n)
	begun := time.Now()
	a.each(n, func(i int) (err error) { disks[i], err = a.attach(ctx, i); return err })
	attached := time.Since(begun)
	if all, err := rig.Connected(); err != nil || len(all) != n {
		t.Errorf("%d devices connected (%v), want %d", len(all), err, n)
	}
	a.each(n, func(i int) error { return disks[i].use(byte(i)) })
	t.Logf("with %d devices: %v", n, a.held())
	begun = time.Now()
	a.each(n, func(i int) error { return disks[i].detach(ctx) })
	t.Logf("%d devices attached in %v, detached in %v", n, attached.Round(time.Millisecond), time.Since(begun).Round(time.Millisecond))
	a.unchanged(before)
}

// each does something n times at once.
func (a *array) each(n int, do func(i int) error) {
	a.Helper()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	must(a.T, errors.Join(errs...))
}
