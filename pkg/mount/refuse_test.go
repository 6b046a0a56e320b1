package mount_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
	"github.com/csi-mpath/csi-mpath/pkg/mount"
	"github.com/csi-mpath/csi-mpath/pkg/program"
)

// cutAt stages until a fault point and no further.
func cutAt(t *testing.T, h *mount.Host, r mount.Request, point string) {
	t.Helper()
	restore := faultpoint.Set(func(name string) {
		if name == point {
			panic(point)
		}
	})
	defer restore()
	defer func() {
		if p := recover(); p != any(point) {
			t.Fatalf("not cut at %s: %v", point, p)
		}
	}()
	_, _ = h.Stage(t.Context(), r)
}

func TestD03AFileSystemUnderAPartitionTableIsRefused(t *testing.T) {
	n, _, h, r := staged(t, mount.Ext4)
	n.Script = func(c program.Call) *program.Result {
		if c.Name == "blkid" {
			return &program.Result{Out: []byte("TYPE=ext4\nUSAGE=filesystem\nPTTYPE=dos\n")}
		}
		return nil
	}
	if _, err := h.Stage(t.Context(), r); !errors.Is(err, mount.ErrContent) {
		t.Fatal(err)
	}
}

func TestWhatBlkidCannotDecideIsRefused(t *testing.T) {
	n, _, h, r := staged(t, mount.XFS)
	n.Script = func(c program.Call) *program.Result {
		if c.Name == "blkid" {
			return &program.Result{Code: 8}
		}
		return nil
	}
	if _, err := h.Stage(t.Context(), r); !errors.Is(err, mount.ErrContent) {
		t.Fatal(err)
	}
}

// A file may lie where the second intent was, and hold one.
func TestAnXFSBesideAnIntentIsFormattedNeverAndMountedWhenItIsClean(t *testing.T) {
	n, _, h, r := node(t, mount.XFS)
	cutAt(t, h, r, "mount.format.made")
	h = mount.Over(n)
	n.Script = func(c program.Call) *program.Result {
		if c.Name == "xfs_repair" {
			return &program.Result{Code: 1}
		}
		return nil
	}
	if _, err := h.Stage(t.Context(), r); !errors.Is(err, mount.ErrDamaged) || n.Ran("mount") != 0 {
		t.Fatalf("%v, mounted %d times", err, n.Ran("mount"))
	}
	n.Script = nil
	if rep := stage(t, h, r); rep.Formatted || formats(n) != 1 {
		t.Fatalf("%+v", rep)
	}
}

func TestAFileSystemThatIsMountedIsNotFormattedWhateverIsInItsBootBlock(t *testing.T) {
	_, marked, other, q := node(t, mount.Ext4)
	cutAt(t, other, q, "mount.format.intended")
	boot := make([]byte, 1024)
	if _, err := marked.ReadAt(boot, 0); err != nil {
		t.Fatal(err)
	}
	n, d, h, r := staged(t, mount.Ext4)
	stage(t, h, r)
	if _, err := d.WriteAt(boot, 0); err != nil {
		t.Fatal(err)
	}
	r.Target = filepath.Join(t.TempDir(), "elsewhere")
	if _, err := h.Stage(t.Context(), r); !errors.Is(err, mount.ErrInUse) || formats(n) != 1 {
		t.Fatalf("%v, %d formats", err, formats(n))
	}
}
