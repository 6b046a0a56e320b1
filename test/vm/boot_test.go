//go:build vm

package vm

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
	"github.com/csi-mpath/csi-mpath/test/vm/writers"
)

const mib = 1 << 20

func TestMain(m *testing.M) { os.Exit(kmsg.Main(m)) }

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

func TestWeAreRootInAMachineOfOurOwn(t *testing.T) {
	kmsg.Watch(t)
	first, err := os.ReadFile("/proc/1/comm")
	must(t, err)
	if os.Getuid() != 0 || strings.TrimSpace(string(first)) != "init" {
		t.Fatalf("user %d, process 1 is %q: run these tests with make vm-test", os.Getuid(), first)
	}
}

func TestTheKernelIsTheOneThatWasAskedFor(t *testing.T) {
	kmsg.Watch(t)
	var u unix.Utsname
	must(t, unix.Uname(&u))
	want := os.Getenv("CSI_MPATH_VM_KERNEL")
	if got := unix.ByteSliceToString(u.Release[:]); want == "" || !strings.HasPrefix(got, want+".") {
		t.Fatalf("kernel %s, want %s", got, want)
	}
}

func TestTheNbdModuleHasItsDevices(t *testing.T) {
	kmsg.Watch(t)
	st, err := os.Stat("/dev/nbd0")
	must(t, err)
	if st.Mode()&os.ModeDevice == 0 || st.Mode()&os.ModeCharDevice != 0 {
		t.Fatalf("/dev/nbd0 is %v, want a block device", st.Mode())
	}
	if n, err := rig.Size("nbd0"); err != nil || n != 0 {
		t.Fatalf("nbd0 has %d bytes (%v) and nobody serves it", n, err)
	}
	if all, err := rig.Connected(); err != nil || len(all) != 0 {
		t.Fatalf("connected: %v, %v", all, err)
	}
}

func TestOrphansAreReaped(t *testing.T) {
	kmsg.Watch(t)
	pid := strings.TrimSpace(rig.Sh(t, "(sh -c 'echo $$; exec true' &); true"))
	ctx := within(t, 30*time.Second)
	for ctx.Err() == nil {
		if _, err := os.Stat("/proc/" + pid); os.IsNotExist(err) {
			return
		}
	}
	t.Fatalf("process %s is still there", pid)
}

func TestAnUncleanLogIsNoticed(t *testing.T) {
	kmsg.Watch(t, kmsg.Provoked("a test of the log"))
	l, err := kmsg.Open()
	must(t, err)
	defer l.Close()
	must(t, l.ToEnd())
	must(t, os.WriteFile("/dev/kmsg", []byte("<4>WARNING: a test of the log\n"), 0))
	all, err := l.Read()
	must(t, err)
	if got := kmsg.Findings(all); len(got) != 1 {
		t.Fatalf("found %v in %v", got, all)
	}
}

func TestWritersVerifyOnEveryFileSystem(t *testing.T) {
	kmsg.Watch(t)
	rig.Modprobe(t, "brd rd_nr=1 rd_size=393216")
	dir := t.TempDir()
	for fs, check := range map[string]string{"ext4": "e2fsck -fn", "xfs": "xfs_repair -n"} {
		rig.Sh(t, "mkfs."+fs+" -q $(test "+fs+" = xfs && echo -f || echo -F) /dev/ram0 && mount /dev/ram0 "+dir)
		l, err := writers.Start(writers.Config{Dir: dir, Size: 256 << 10, Max: 16}, 16)
		must(t, err)
		must(t, l.Progress(within(t, time.Minute)))
		r, err := l.Stop(within(t, time.Minute))
		must(t, err)
		rig.Sh(t, "umount "+dir+"; mount /dev/ram0 "+dir)
		must(t, l.Verify(within(t, time.Minute), ""))
		rig.Sh(t, "umount "+dir+"; "+check+" /dev/ram0")
		t.Logf("%s: %d writes, %d reads in %v", fs, r.Writes, r.Reads, r.Elapsed)
	}
}

// served is a volume over two targets, under /dev/nbd0 by Debian's nbd-client:
// the product on a kernel before it attaches itself.
func served(t *testing.T, size int64) (*rig.Targets, *rig.Product) {
	t.Helper()
	x := rig.StartTargets(t, size, nil)
	socket := filepath.Join(x.Dir(), "nbd.sock")
	p := rig.StartProduct(t, append([]string{"attach", "--socket", socket, "--state-dir", x.Dir() + "/state"}, x.Flags()...)...)
	for ctx := within(t, time.Minute); ; {
		if _, err := os.Stat(socket); err == nil {
			break
		}
		must(t, p.Err())
		must(t, ctx.Err())
	}
	rig.Sh(t, "nbd-client -timeout 20 -unix "+socket+" /dev/nbd0")
	t.Cleanup(func() {
		rig.Sh(t, "nbd-client -d /dev/nbd0")
		must(t, rig.WaitConnected(context.Background(), 0))
	})
	must(t, rig.WaitSize(t.Context(), "nbd0", size))
	return x, p
}

// load is 16 writers at work.
func load(t *testing.T) *writers.Load {
	t.Helper()
	l, err := writers.Start(writers.Config{Path: "/dev/nbd0", Size: mib, Max: 16}, 16)
	must(t, err)
	must(t, l.Progress(within(t, time.Minute)))
	return l
}

func TestTheKernelsClientReachesAVolumeOverTwoTargets(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost)
	x, _ := served(t, 64*mib)
	l := load(t)
	l.TakeStall()
	x.Paths[0].Kill()
	must(t, l.Progress(within(t, time.Minute)))
	t.Logf("longest stall when a path was killed: %v", l.TakeStall().For)
	must(t, x.Paths[0].Revive(t.Context()))
	must(t, l.Progress(within(t, time.Minute)))
	r, err := l.Stop(within(t, time.Minute))
	must(t, err)
	must(t, l.Verify(within(t, time.Minute), ""))
	must(t, l.Verify(within(t, time.Minute), x.File()))
	t.Logf("%d writes, %d reads in %v", r.Writes, r.Reads, r.Elapsed)
}

// A harness that cannot fail proves nothing. nbd-client does not come back.
func TestALostServerIsSeenByTheWritersAndInTheLog(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost, kmsg.Provoked("I/O error"))
	log, err := kmsg.Open()
	must(t, err)
	defer log.Close()
	must(t, log.ToEnd())
	x, p := served(t, 64*mib)
	l := load(t)
	p.Kill()
	if _, err := l.Stop(within(t, time.Minute)); err == nil || !strings.Contains(err.Error(), "input/output error") {
		t.Errorf("the writers saw %v", err)
	}
	all, err := log.Read()
	must(t, err)
	if len(kmsg.Findings(all, kmsg.ServerLost)) == 0 {
		t.Errorf("the kernel's log is clean: %v", all)
	}
	must(t, l.Verify(within(t, time.Minute), x.File())) // and yet nothing was lost
}
