//go:build interop

package mount_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/fuseblk"
	"github.com/csi-mpath/csi-mpath/pkg/mount"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/nbdtest"
)

// power is a disk whose power goes off after so many writes.
type power struct {
	*nbdtest.RAM
	left atomic.Int64
}

func (p *power) OpenLane(int) (nbd.Lane, error) { return (*powerLane)(p), nil }

type powerLane power

func (l *powerLane) Submit(first *blk.Request) {
	for r := first; r != nil; {
		next := r.Next
		r.Status = blk.IOError
		if !r.Op.Mutates() && l.left.Load() > 0 || l.left.Add(-1) >= 0 {
			r.Status = l.Do(r)
		}
		r.Owner.Complete(r)
		r = next
	}
}

func (l *powerLane) Close() {}

// attached is the disk as a block device, until end.
func attached(t *testing.T, e nbd.Export) (dev string, end func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "pw")
	if err != nil {
		t.Fatal(err)
	}
	d, err := fuseblk.Attach(t.Context(), filepath.Join(dir, "fuse"), e)
	if err != nil {
		t.Fatal(err)
	}
	return d.Path(), func() {
		if err := errors.Join(d.Close(context.WithoutCancel(t.Context())), os.Remove(dir)); err != nil {
			t.Error(err)
		}
	}
}

// The power goes off at each write of a first stage, those of the real mkfs
// among them. Whatever is on the disk then is formatted again or complete, and
// never refused or mounted half-made (case D-12, I7).
func TestD12TheRealMkfsIsCutShortAtEachOfItsWrites(t *testing.T) {
	for _, fsType := range []string{mount.Ext4, mount.XFS} {
		t.Run(fsType, func(t *testing.T) {
			resumed := 0
			for writes := int64(0); ; writes++ {
				m, err := nbdtest.NewRAM(deviceSize, 4096)
				if err != nil {
					t.Fatal(err)
				}
				whole := !stageUntil(t, &power{RAM: m}, fsType, writes)
				if rep := stageAgain(t, m, fsType, writes); rep.Resumed {
					resumed++
				}
				if err := m.Close(); err != nil {
					t.Fatal(err)
				}
				if whole {
					t.Logf("%d writes, %d formats were repeated", writes, resumed)
					break
				}
			}
		})
	}
}

const deviceSize = 320 << 20

// stageUntil stages a blank disk until its power goes off; it reports whether it
// did.
func stageUntil(t *testing.T, p *power, fsType string, writes int64) (cut bool) {
	t.Helper()
	p.left.Store(writes)
	dev, end := attached(t, p)
	defer end()
	at := filepath.Join(shortDir(t), "at")
	_, err := mount.New().Stage(t.Context(), mount.Request{Volume: "vol", Device: dev, Target: at, FSType: fsType, Blank: true})
	if err := mount.New().Unmount(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	return err != nil || p.left.Load() <= 0
}

// stageAgain stages it with power, although it was written to, and checks what
// came of it.
func stageAgain(t *testing.T, m *nbdtest.RAM, fsType string, writes int64) mount.Report {
	t.Helper()
	dev, end := attached(t, m)
	defer end()
	at := filepath.Join(shortDir(t), "at")
	rep, err := mount.New().Stage(t.Context(), mount.Request{Volume: "vol", Device: dev, Target: at, FSType: fsType, Blank: writes == 0})
	if err != nil {
		t.Fatalf("after %d writes: %v", writes, err)
	}
	if err := mount.New().Unmount(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	check := []string{"e2fsck", "-f", "-n", dev}
	if fsType == mount.XFS {
		check = []string{"xfs_repair", "-n", dev}
	}
	if out, err := exec.Command(check[0], check[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("after %d writes: %v: %s", writes, err, out)
	}
	return rep
}

func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "pw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
