//go:build vm

package product

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	interop "github.com/csi-mpath/csi-mpath/test/interop/rig"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
	"github.com/csi-mpath/csi-mpath/test/vm/writers"
)

const (
	mib = 1 << 20

	// patience bounds what must come in the end, in an emulated machine on a busy
	// host.
	patience = 3 * time.Minute
	// ioTimeout is the product's queue/io_timeout: what a dead process left
	// unanswered comes again when it is so old.
	ioTimeout = 2 * time.Second
)

func TestMain(m *testing.M) { os.Exit(kmsg.Main(m, kmsg.ServerLost, kmsg.ServerSlow)) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// scale is how often, or for how many seconds, something is done: as CI does
// it, or as LONG=1 does, unless the variable of that name says otherwise.
func scale(t *testing.T, name string, short, long int) int {
	t.Helper()
	if v := os.Getenv(name); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			t.Fatalf("%s=%q is no positive number", name, v)
		}
		return n
	}
	if os.Getenv("CSI_MPATH_LONG") != "" {
		return long
	}
	return short
}

// kills is for each kind of use; there are three.
func kills(t *testing.T) int { return scale(t, "CSI_MPATH_KILLS", 1, 20) }

// volumes are numbered: the kernel tells them apart by their names.
var volumes atomic.Int32

// attach is a volume over two tgt daemons.
func attach(t *testing.T, size int64, flags ...string) (*rig.Targets, *rig.Volume) {
	t.Helper()
	x := rig.StartTargets(t, size, nil)
	v := rig.AttachVolume(t, x.Dir(), fmt.Sprint("vol-", volumes.Add(1)), append(flags, x.Flags()...)...)
	must(t, rig.WaitSize(t.Context(), v.Device, size))
	return x, v
}

// fileSystem is how to make one and look after it; DEV and DIR stand for the
// device and the folder where it is mounted.
type fileSystem struct{ make, mount, grow, check string }

var fileSystems = map[string]fileSystem{
	"ext4": {"mkfs.ext4 -qF DEV", "mount DEV DIR", "resize2fs DEV", "e2fsck -fn DEV"},
	"xfs":  {"mkfs.xfs -qf DEV", "mount DEV DIR", "xfs_growfs -d DIR", "xfs_repair -n DEV"},
}

// names of the kinds of use, in a fixed order.
var kinds = []string{"raw", "ext4", "xfs"}

// use is a device with a file system on it, or raw.
type use struct {
	t   *testing.T
	fs  fileSystem
	dev string
	dir string // where it is mounted; "" for raw
}

func newUse(t *testing.T, kind, dev string) *use {
	t.Helper()
	u := &use{t: t, dev: dev}
	if kind == "raw" {
		return u
	}
	u.fs, u.dir = fileSystems[kind], t.TempDir()
	u.sh(u.fs.make + "; " + u.fs.mount)
	t.Cleanup(func() { _, _ = rig.Try("umount " + u.dir + " 2>/dev/null || true") })
	return u
}

func (u *use) sh(script string) string {
	u.t.Helper()
	return rig.Sh(u.t, strings.NewReplacer("DEV", u.dev, "DIR", u.dir).Replace(script))
}

// load is 16 writers that sync each write and read back.
func (u *use) load() *writers.Load {
	u.t.Helper()
	return u.writers(16)
}

func (u *use) writers(n int) *writers.Load {
	u.t.Helper()
	cfg := writers.Config{Path: u.dev, Size: 256 << 10, Max: 16, Seed: 1}
	if u.dir != "" {
		cfg.Path, cfg.Dir = "", u.dir
	}
	l, err := writers.Start(cfg, n)
	must(u.t, err)
	must(u.t, l.Progress(within(u.t, patience)))
	return l
}

// finish ends a load and proves that nothing was lost, on the device after all
// caches were dropped, and that the file system is in order.
func (u *use) finish(l *writers.Load, x *rig.Targets) writers.Result {
	u.t.Helper()
	r, err := l.Stop(within(u.t, patience))
	must(u.t, err)
	if u.dir == "" {
		must(u.t, l.Verify(within(u.t, patience), x.File()))
	} else {
		u.sh("umount DIR; echo 3 >/proc/sys/vm/drop_caches; " + u.fs.check + "; " + u.fs.mount)
	}
	must(u.t, l.Verify(within(u.t, patience), ""))
	if u.dir != "" {
		u.sh("umount DIR")
	}
	return r
}

// moved waits until every writer has done something after now, twice: what
// waited has ended, and what came then is answered, too.
func moved(t *testing.T, l *writers.Load) {
	t.Helper()
	for range 2 {
		must(t, l.Progress(within(t, patience)))
	}
}

// control is the longest operation of the load in so much time without a fault.
func control(t *testing.T, l *writers.Load, d time.Duration) time.Duration {
	t.Helper()
	l.TakeStall()
	interop.Pause(t.Context(), d)
	must(t, l.Err())
	return l.TakeStall().For
}

// durations are reported together.
type durations []time.Duration

func (d durations) String() string {
	if len(d) == 0 {
		return "none"
	}
	s := slices.Sorted(slices.Values(d))
	return fmt.Sprintf("median %.1f s, longest %.1f s", s[len(s)/2].Seconds(), s[len(s)-1].Seconds())
}

// stalls collects what the rounds of one test saw.
type stalls struct{ control, restart, stall, beyond durations }

// add takes one round: the fault-free longest operation, the time until the
// device was served again, the longest operation.
func (s *stalls) add(control, restart, stall time.Duration) {
	s.control, s.restart, s.stall = append(s.control, control), append(s.restart, restart), append(s.stall, stall)
	if bound := restart + 2*ioTimeout; stall > bound {
		s.beyond = append(s.beyond, stall-bound)
	}
}

func (s *stalls) report(t *testing.T, what string) {
	t.Helper()
	t.Logf("%s, %d rounds: stall %v; restart %v; without a fault %v; %d stalls beyond restart + 2 x io_timeout (by: %v)",
		what, len(s.stall), s.stall, s.restart, s.control, len(s.beyond), s.beyond)
}
