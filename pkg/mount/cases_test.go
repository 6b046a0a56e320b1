package mount_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/mount"
	"github.com/csi-mpath/csi-mpath/pkg/mount/mounttest"
	"github.com/csi-mpath/csi-mpath/pkg/program"
)

const (
	dev  = "/dev/fake1"
	size = 320 << 20
)

// node is a node with one blank device, and what Stage is asked about it.
func node(t *testing.T, fsType string) (*mounttest.Node, *mounttest.Memory, *mount.Host, mount.Request) {
	n, d := mounttest.New(), mounttest.NewMemory(size)
	n.Add(dev, "43:1", d)
	return n, d, mount.Over(n), mount.Request{Volume: "1.b.p.vol", Device: dev, Target: filepath.Join(t.TempDir(), "staged"), FSType: fsType, Blank: true}
}

// stage must succeed.
func stage(t *testing.T, h *mount.Host, r mount.Request) mount.Report {
	t.Helper()
	rep, err := h.Stage(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// staged is a node with a file system that was mounted once, and is not now.
func staged(t *testing.T, fsType string) (*mounttest.Node, *mounttest.Memory, *mount.Host, mount.Request) {
	n, d, h, r := node(t, fsType)
	stage(t, h, r)
	if err := h.Unmount(t.Context(), r.Target); err != nil {
		t.Fatal(err)
	}
	r.Blank = false
	return n, d, h, r
}

func formats(n *mounttest.Node) int { return n.Ran("mkfs.ext4") + n.Ran("mkfs.xfs") }

func TestD01ADeviceThatCannotBeReadIsNotFormatted(t *testing.T) {
	for _, readable := range []int64{0, 4096, 1 << 20, 2<<20 - 4096, 2 << 20} { // the last: its end cannot
		n, d, h, r := node(t, mount.Ext4)
		d.FailReads(readable)
		if _, err := h.Stage(t.Context(), r); !errors.Is(err, mount.ErrUnreadable) {
			t.Errorf("%d bytes readable: %v", readable, err)
		}
		if formats(n) != 0 {
			t.Fatal("it was formatted")
		}
		d.FailReads(-1)
		if rep := stage(t, h, r); !rep.Formatted {
			t.Errorf("not formatted once it could be read: %+v", rep)
		}
	}
}

func TestD01AFileSystemThatBlkidCannotReadIsNotFormatted(t *testing.T) {
	n, _, h, r := staged(t, mount.Ext4)
	r.Blank = true
	n.Script = func(c program.Call) *program.Result {
		if c.Name == "blkid" {
			return &program.Result{Code: 2}
		}
		return nil
	}
	if _, err := h.Stage(t.Context(), r); !errors.Is(err, mount.ErrUnreadable) {
		t.Fatal(err)
	}
	if formats(n) != 1 {
		t.Fatal("it was formatted")
	}
}

func TestD01AShortReadIsNoRead(t *testing.T) {
	n, _, h, r := node(t, mount.XFS)
	n.Script = func(c program.Call) *program.Result {
		if c.Name == "dd" {
			return &program.Result{Out: make([]byte, 4096)}
		}
		return nil
	}
	if _, err := h.Stage(t.Context(), r); !errors.Is(err, mount.ErrUnreadable) || formats(n) != 0 {
		t.Fatalf("%v, %d formats", err, formats(n))
	}
}

func TestD01ADeviceThatHangsIsNotFormattedAndHoldsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, h, r := node(t, mount.Ext4)
		n.Hang(dev)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.Stage(ctx, r); !errors.Is(err, mount.ErrUnreadable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if _, err := h.Stage(t.Context(), r); !errors.Is(err, mount.ErrHangs) {
			t.Fatalf("a second call: %v", err)
		}
		n.Resume(dev)
		synctest.Wait()
		if rep := stage(t, h, r); !rep.Formatted {
			t.Fatalf("%+v", rep)
		}
	})
}

// mkfs is cut short at each of its writes; what is on the device then is ours to
// repeat, and nothing that would be refused or mounted half-made.
func TestD12AFormatCutShortInsideMkfsIsRepeated(t *testing.T) {
	for _, fsType := range []string{mount.Ext4, mount.XFS} {
		for stop := 1; ; stop++ {
			n, _, h, r := node(t, fsType)
			steps, cut := 0, false
			n.Step = func(string) {
				if steps++; steps == stop {
					cut = true
					panic("cut")
				}
			}
			func() {
				defer func() { _ = recover() }()
				_, _ = h.Stage(t.Context(), r)
			}()
			n.Step = nil
			if !cut {
				break
			}
			h, r.Blank = mount.Over(n), false // the volume counts as written to
			rep := stage(t, h, r)
			if !rep.Formatted && fsType == mount.Ext4 {
				t.Fatalf("%s cut at write %d: %+v", fsType, stop, rep)
			}
			if again := stage(t, h, r); again.Formatted {
				t.Fatalf("%s cut at write %d was made twice", fsType, stop)
			}
		}
	}
}

func TestAFailedMkfsIsRepeated(t *testing.T) {
	n, _, h, r := node(t, mount.XFS)
	n.Script = func(c program.Call) *program.Result {
		if strings.HasPrefix(c.Name, "mkfs") {
			return &program.Result{Code: 1, Message: "no space"}
		}
		return nil
	}
	if _, err := h.Stage(t.Context(), r); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Fatal(err)
	}
	n.Script = nil
	if rep := stage(t, h, r); !rep.Resumed {
		t.Fatalf("%+v", rep)
	}
}

func TestAnMkfsThatMadeNothingIsNotBelieved(t *testing.T) {
	n, _, h, r := node(t, mount.XFS)
	n.Script = func(c program.Call) *program.Result {
		if strings.HasPrefix(c.Name, "mkfs") {
			return &program.Result{}
		}
		return nil
	}
	if _, err := h.Stage(t.Context(), r); err == nil || n.Ran("mount") != 0 {
		t.Fatalf("%v, mounted %d times", err, n.Ran("mount"))
	}
}

func TestD04EveryXFSIsMountedWithNouuidAndItsLogIsNeverThrownAway(t *testing.T) {
	n, _, h, r := staged(t, mount.XFS)
	stage(t, h, r)
	for _, c := range n.Calls() {
		if strings.HasPrefix(c, "mount ") && !strings.Contains(c, "nouuid") {
			t.Errorf("mounted by %q", c)
		}
		if strings.HasPrefix(c, "xfs_repair") {
			t.Errorf("%q ran", c)
		}
	}
}

func TestD05AGrowthThatFailedIsMadeGoodByTheNextStage(t *testing.T) {
	for _, fsType := range []string{mount.Ext4, mount.XFS} {
		n, d, h, r := staged(t, fsType)
		d.Resize(2 * size)
		n.Script = func(c program.Call) *program.Result {
			if c.Name == "resize2fs" || c.Name == "xfs_growfs" {
				return &program.Result{Code: 1, Message: "out of memory"}
			}
			return nil
		}
		if _, err := h.Stage(t.Context(), r); err == nil {
			t.Fatal("a failed growth is a success")
		}
		n.Script = nil
		if rep := stage(t, h, r); !rep.Mounted || rep.Growth.To != 2*size {
			t.Fatalf("%+v", rep)
		}
	}
}

func TestD17FsckRulesByExitCode(t *testing.T) {
	for _, c := range []struct {
		code            int
		repaired, fails bool
		want            error
	}{
		{0, false, false, nil}, {1, true, false, nil}, {3, true, false, nil},
		{4, false, true, mount.ErrDamaged}, {12, false, true, mount.ErrDamaged}, {8, false, true, nil}, {32, false, true, nil},
	} {
		n, _, h, r := staged(t, mount.Ext4)
		n.Script = func(p program.Call) *program.Result {
			if p.Name == "e2fsck" {
				return &program.Result{Code: c.code, Out: []byte("inode 12 was fixed\n\n")}
			}
			return nil
		}
		before := n.Ran("mount")
		rep, err := h.Stage(t.Context(), r)
		if (err != nil) != c.fails || c.want != nil && !errors.Is(err, c.want) || rep.Repaired != c.repaired ||
			!slices.Equal(rep.Messages, []string{"inode 12 was fixed"}) {
			t.Errorf("exit code %d: %+v, %v", c.code, rep, err)
		}
		if mounted := n.Ran("mount") > before; mounted == c.fails || formats(n) != 1 {
			t.Errorf("exit code %d: mounted %v, %d formats", c.code, mounted, formats(n))
		}
	}
}

func TestD17FsckRunsBeforeTheFirstMountOnlyAndNeverSaysYes(t *testing.T) {
	n, _, h, r := staged(t, mount.Ext4)
	before := n.Ran("e2fsck")
	stage(t, h, r)
	for i := range 2 {
		pod := filepath.Join(t.TempDir(), fmt.Sprint("pod", i))
		if err := h.Bind(t.Context(), r.Target, pod, false); err != nil {
			t.Fatal(err)
		}
	}
	stage(t, h, r)
	second := r
	second.Target = filepath.Join(t.TempDir(), "second")
	stage(t, h, second)
	if got := n.Ran("e2fsck") - before; got != 1 {
		t.Fatalf("e2fsck ran %d times", got)
	}
	for _, c := range n.Calls() {
		if strings.HasPrefix(c, "e2fsck") && c != "e2fsck -p "+dev {
			t.Errorf("%q ran", c)
		}
	}
}

func TestD17AReadOnlyVolumeIsNotChecked(t *testing.T) {
	for fsType, want := range map[string]string{mount.Ext4: "-o ro,noload ", mount.XFS: "-o nouuid,ro,norecovery "} {
		n, _, h, r := staged(t, fsType)
		before := n.Ran("e2fsck")
		r.ReadOnly = true
		stage(t, h, r)
		calls := n.Calls()
		if n.Ran("e2fsck") != before || !strings.Contains(calls[len(calls)-1], want) {
			t.Errorf("%s: the last call is %q", fsType, calls[len(calls)-1])
		}
	}
}

func TestD20StatisticsOfAHungVolumeEndAndDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, h, r := staged(t, mount.Ext4)
		stage(t, h, r)
		n.Hang(dev)
		for range 200 {
			begin := time.Now()
			if _, err := h.Stats(t.Context(), r.Target); !errors.Is(err, mount.ErrHangs) {
				t.Fatal(err)
			}
			if took := time.Since(begin); took >= time.Second {
				t.Fatalf("it took %v", took)
			}
		}
		if time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) > 2*time.Second {
			t.Fatal("more than one call waited") // each waiting one takes half a second
		}
		n.Resume(dev)
		synctest.Wait()
		if _, err := h.Stats(t.Context(), r.Target); err != nil {
			t.Fatal(err)
		}
	})
}

func TestD21ADeviceThatShrankForAMomentChangesNothing(t *testing.T) {
	for _, now := range []uint64{0, size / 2} {
		n, d, h, r := staged(t, mount.XFS)
		stage(t, h, r)
		d.Resize(now)
		if _, err := h.Grow(t.Context(), r.Target); err == nil {
			t.Errorf("%d bytes: no error", now)
		}
		d.Resize(2 * size)
		if g, err := h.Grow(t.Context(), r.Target); err != nil || g != (mount.Growth{From: size, To: 2 * size}) {
			t.Errorf("%+v, %v", g, err)
		}
		if n.Ran("xfs_growfs") != 1 {
			t.Errorf("grown %d times", n.Ran("xfs_growfs"))
		}
	}
}
