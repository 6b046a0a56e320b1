//go:build vm

package reclaim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/target"
	interop "github.com/csi-mpath/csi-mpath/test/interop/rig"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

const (
	mib = 1 << 20

	// limit bounds one test's writes and reads in an emulated machine.
	limit = 8 * time.Minute
	files = 4
	// more than the machine's memory (vmrun.flags).
	total = 448 * mib
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// load is what happens while more than the memory is written.
type load struct {
	kind string // of file system
	// unbounded undoes the product's bound on the device's dirty pages, and most of
	// the kernel's own: what is dirty fills the memory.
	unbounded     bool
	quarter, half func(a *array, v *rig.Volume) // after so much was written
}

// unbind takes off all bounds on dirty pages.
func unbind(t *testing.T, device string) {
	t.Helper()
	must(t, rig.SetAttribute(device, "bdi/max_ratio", "100"))
	if err := rig.SetAttribute(device, "bdi/strict_limit", "0"); !errors.Is(err, os.ErrNotExist) { // not in 6.1
		must(t, err)
	}
	const ratios = "vm.dirty_ratio=%s vm.dirty_background_ratio=%s"
	before := rig.Sh(t, "sysctl -n vm.dirty_ratio vm.dirty_background_ratio")
	rig.Sh(t, "sysctl -q vm.dirty_ratio=90 vm.dirty_background_ratio=80")
	old := strings.Fields(before)
	t.Cleanup(func() { rig.Sh(t, "sysctl -q "+fmt.Sprintf(ratios, old[0], old[1])) })
}

// flood writes more than the memory through the page cache of a file system on
// the product's device, and proves the data. It returns the most bytes that
// were dirty, and the machine's memory.
func flood(t *testing.T, do load) (dirty, memory int64) {
	t.Helper()
	kind := do.kind
	kmsg.Watch(t, kmsg.ServerLost, kmsg.ServerSlow)
	all, err := rig.Memory("MemTotal")
	must(t, err)
	if all > total {
		t.Fatalf("the machine has %d MiB, and the test writes %d", all/mib, total/mib)
	}
	a := startArray(t)
	dir, err := os.MkdirTemp("", "x") // short: there are sockets in it
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	v := rig.AttachVolume(t, dir, "flood", "--iscsi", a.portals, "--target", target.DefaultName, "--lun", "1")
	where := filepath.Join(dir, "mnt")
	rig.Sh(t, "mkfs."+kind+" -q "+v.Device+"; mkdir "+where+"; mount "+v.Device+" "+where)
	t.Cleanup(func() { _, _ = rig.Try("umount " + where + " 2>/dev/null || true") })

	if do.unbounded {
		unbind(t, v.Device)
	}
	w := &flooding{dir: where, least: all, done: make(chan struct{})}
	begun := time.Now()
	w.start()
	if do.quarter != nil {
		w.reach(t, total/4)
		do.quarter(a, v)
	}
	if do.half != nil {
		w.reach(t, total/2)
		do.half(a, v)
	}
	w.finish(t)
	took := time.Since(begun)
	rig.Sh(t, "umount "+where+"; echo 3 >/proc/sys/vm/drop_caches; mount "+v.Device+" "+where)
	must(t, rig.SetAttribute(v.Device, "queue/read_ahead_kb", "1024"))
	must(t, w.each(func(i int) error { return read(w.name(i), i) }))
	rig.Sh(t, "umount "+where)
	check := map[string]string{"ext4": "e2fsck -fn ", "xfs": "xfs_repair -n "}
	rig.Sh(t, check[kind]+v.Device)
	t.Logf("%s: %d MiB in %v (%.1f MiB/s) with %d MiB of memory; most dirty %d MiB, least available %d MiB",
		kind, total/mib, took.Round(time.Second), float64(total/mib)/took.Seconds(), all/mib, w.dirty/mib, w.least/mib)
	return w.dirty, all
}

// flooding is the writes under way.
type flooding struct {
	dir     string
	written atomic.Int64  // bytes; added to by the writers
	done    chan struct{} // closed when they have ended
	err     error         // read after done
	// Written by watch, read after watched.
	dirty, least int64
	watched      sync.WaitGroup
}

func (w *flooding) name(i int) string { return filepath.Join(w.dir, fmt.Sprint("file-", i)) }

func (w *flooding) start() {
	go func() {
		w.err = w.each(w.write)
		close(w.done)
	}()
	w.watched.Go(w.watch)
}

func (w *flooding) each(do func(i int) error) error {
	errs := make([]error, files)
	var wg sync.WaitGroup
	for i := range files {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// watch keeps the extremes of the machine's memory.
func (w *flooding) watch() {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		dirty, _ := rig.Memory("Dirty")
		back, _ := rig.Memory("Writeback")
		if free, err := rig.Memory("MemAvailable"); err == nil {
			w.dirty, w.least = max(w.dirty, dirty+back), min(w.least, free)
		}
		select {
		case <-tick.C:
		case <-w.done:
			return
		}
	}
}

// reach waits until so much was written.
func (w *flooding) reach(t *testing.T, n int64) {
	t.Helper()
	must(t, interop.Until(t.Context(), limit, fmt.Sprint(n/mib, " MiB to be written"), func() bool {
		select {
		case <-w.done:
			return true
		default:
			return w.written.Load() >= n
		}
	}))
}

func (w *flooding) finish(t *testing.T) {
	t.Helper()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-w.done:
		must(t, w.err)
	case <-late.C:
		t.Fatalf("%d of %d MiB written within %v: a deadlock?", w.written.Load()/mib, total/mib, limit)
	}
	w.watched.Wait()
}

// word is what block n of file i repeats.
func word(i int, n int64) uint64 { return uint64(i+1)<<56 | uint64(n+1)*0x9e3779b97f4a7c>>8 }

func (w *flooding) write(i int) error {
	f, err := os.Create(w.name(i))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	buf := make([]byte, mib)
	for at := int64(0); at < total/files; at += mib {
		for n := int64(0); n < mib; n += block {
			repeat(buf[n:n+block], word(i, (at+n)/block))
		}
		if _, err := f.Write(buf); err != nil {
			return err
		}
		w.written.Add(mib)
	}
	return f.Sync()
}

// read compares a file with what was written.
func read(name string, i int) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	buf := make([]byte, mib)
	for at := int64(0); at < total/files; at += mib {
		if _, err := f.ReadAt(buf, at); err != nil {
			return fmt.Errorf("%s at %d: %w", name, at, err)
		}
		for n := int64(0); n < mib; n += block {
			if got, same := repeated(buf[n : n+block]); !same || got != word(i, (at+n)/block) {
				return fmt.Errorf("%s at %d holds %x, want %x", name, at+n, got, word(i, (at+n)/block))
			}
		}
	}
	return nil
}

func TestADevicesDirtyPagesAreBounded(t *testing.T) {
	dirty, memory := flood(t, load{kind: "ext4"})
	if dirty > memory/4 {
		t.Errorf("%d of %d MiB were dirty, and the bound of one device is a fifth of what may be", dirty/mib, memory/mib)
	}
}

// filled fails a test that did not fill the memory.
func filled(t *testing.T, dirty, memory int64) {
	t.Helper()
	if dirty < memory/4 {
		t.Errorf("only %d of %d MiB were dirty: the test proves nothing", dirty/mib, memory/mib)
	}
}

func TestDirtyPagesThatFillTheMemoryAreWrittenBackThoughAPathIsLost(t *testing.T) {
	dirty, memory := flood(t, load{kind: "xfs", unbounded: true,
		quarter: func(a *array, _ *rig.Volume) { a.do("kill", 0) },
		half:    func(a *array, _ *rig.Volume) { a.do("start", 0) }})
	filled(t, dirty, memory)
}

// The next worker starts, and takes over, while memory is full of pages that
// only it can write.
func TestDirtyPagesThatFillTheMemoryAreWrittenBackThoughTheWorkerIsKilled(t *testing.T) {
	kill := func(_ *array, v *rig.Volume) { must(t, v.KillWorker()) }
	dirty, memory := flood(t, load{kind: "ext4", unbounded: true, quarter: kill, half: kill})
	filled(t, dirty, memory)
}
