//go:build vm

package storage

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store/directory"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store/storetest"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/durable"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

func TestAThinPoolIsAStore(t *testing.T) {
	kmsg.Watch(t, memoryDisk)
	g := newGroup(t, 256)
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		for _, v := range g.Volumes() {
			g.LVM("lvremove -q -y " + vg + "/" + v)
		}
		c := g.config()
		c.Marks.Overcommit = 1
		return storetest.Subject{
			Open:      func(*testing.T) store.Store { return g.open(c) },
			Leftovers: func(*testing.T) []string { return g.Volumes() },
			// Ring 1 has all points, over an LVM that is quicker.
			Points: []string{"lvmthin.create.sized"},
			Size:   8 << 20,
			InUse:  true,
			Steps:  10,
		}
	})
}

// A percentage has two digits, and a chunk of 64 KiB is less than that of a
// large volume.
func TestOneChunkOfAHugeVolumeIsNotNothing(t *testing.T) {
	kmsg.Watch(t, memoryDisk)
	g := newGroup(t, 64)
	c := g.config()
	c.Marks.Overcommit = 1000
	s := g.open(c)
	create(t, s, store.Spec{Name: "v-huge", Size: 48 << 30, Labels: storetest.Labels(1)})
	if o, err := s.Object(t.Context(), "v-huge"); err != nil || o.Content != backend.ContentBlank {
		t.Errorf("nothing was written: %+v, %v", o, err)
	}
	b, err := s.Activate(t.Context(), "v-huge")
	if err != nil {
		t.Fatal(err)
	}
	rig.Sh(t, "dd if=/dev/urandom of="+b.Path+" bs=4k count=1 seek=1000000 oflag=direct status=none")
	if o, err := s.Object(t.Context(), "v-huge"); err != nil || o.Content != backend.ContentWritten {
		t.Errorf("one block was written: %+v, %v", o, err)
	}
}

// What a guest writes into its volume is the guest's business: LVM's own labels
// there are not read.
func TestAGuestsVolumeGroupIsNotSeen(t *testing.T) {
	kmsg.Watch(t, memoryDisk)
	g := newGroup(t, 64)
	c := g.config()
	c.Devices = nil // as on a machine where an administrator gave none
	s := g.open(c)
	create(t, s, store.Spec{Name: "v-guest", Size: 32 << 20, Labels: storetest.Labels(1)})
	b, err := s.Activate(t.Context(), "v-guest")
	if err != nil {
		t.Fatal(err)
	}
	const guest = "--config 'devices{scan_lvs=1} activation{udev_sync=0 udev_rules=0}' "
	rig.Sh(t, "pvcreate -q "+guest+b.Path+"; vgcreate -q "+guest+vg+"guest "+b.Path+"; lvcreate -q -y -an -Zn -Wn "+guest+"-n csi.pool0.v-evil -L 4M "+vg+"guest")
	if err := s.Deactivate(t.Context(), "v-guest"); err != nil {
		t.Errorf("deactivate: %v", err)
	}
	objects, err := s.Objects(t.Context())
	if err != nil || len(objects) != 1 {
		t.Errorf("%v, %v", objects, err)
	}
	if err := s.Delete(t.Context(), "v-guest"); err != nil {
		t.Errorf("delete: %v", err)
	}
}

func TestADirectoryWithReflinksIsAStore(t *testing.T) {
	kmsg.Watch(t, memoryDisk)
	for _, kind := range []string{"xfs", "btrfs"} {
		t.Run(kind, func(t *testing.T) {
			at := rig.Mounted(t, kind, 512)
			n := 0
			storetest.Run(t, func(t *testing.T) storetest.Subject {
				n++
				dir := filepath.Join(at, string(rune('a'+n)))
				var last *directory.Store
				t.Cleanup(func() { last.Close(); os.RemoveAll(dir) })
				return storetest.Subject{
					Open: func(t *testing.T) store.Store {
						if last != nil {
							last.Close()
						}
						last = openDirectory(t, dir)
						if !last.Features().Snapshots {
							t.Fatal("no reflinks were found")
						}
						return last
					},
					Leftovers: func(t *testing.T) []string { return files(t, dir) },
					Points:    slices.Concat(directory.Points, durable.Points),
					Size:      4 << 20,
					InUse:     true,
				}
			})
		})
	}
}

// files are those of a store's directory.
func files(t testing.TB, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != ".lock" {
			out = append(out, e.Name())
		}
	}
	return out
}

func TestAFullDirectoryLeavesNothingBehind(t *testing.T) {
	kmsg.Watch(t, memoryDisk)
	dir := filepath.Join(rig.Mounted(t, "xfs", 320), "pool")
	s, err := directory.Open(directory.Config{Path: dir, Preallocate: true, Marks: store.Marks{Data: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Close() }()
	u, err := s.Usage(t.Context())
	rig.Must(t, err)
	before := files(t, dir)
	spec := store.Spec{Name: "v-1", Size: u.Available, Labels: storetest.Labels(1)}
	// Somebody else takes some after the store has looked.
	others := filepath.Dir(dir) + "/meanwhile"
	defer faultpoint.Set(func(name string) {
		if _, err := os.Stat(others); err != nil && name == "directory.create.recorded" {
			rig.Sh(t, "dd if=/dev/zero of="+others+" bs=1M count=3 conv=fsync status=none")
		}
	})()
	for ; ; spec.Size -= mib {
		if _, err = s.Create(t.Context(), spec); err == nil {
			break
		}
		if left := files(t, dir); !isNoSpace(err) || !slices.Equal(left, before) {
			t.Fatalf("%v; left: %v", err, left)
		}
	}
	if spec.Size == u.Available {
		t.Error("the file system was never full")
	}
	rig.Must(t, s.Delete(t.Context(), "v-1"))
	spec.Size = u.Available / 2 / mib * mib
	create(t, s, spec)
	for size := u.Available; ; size -= mib {
		if _, err = s.Expand(t.Context(), "v-1", size); err == nil {
			break
		}
		if o, e := s.Object(t.Context(), "v-1"); !isNoSpace(err) || e != nil || o.Size != spec.Size {
			t.Fatalf("%v; the object: %+v, %v", err, o, e)
		}
	}
	// What is left is taken by somebody else. The agent starts all the same.
	rig.Sh(t, "dd if=/dev/zero of="+filepath.Dir(dir)+"/others bs=64k 2>/dev/null || true; sync")
	rig.Must(t, s.Close())
	if s, err = directory.Open(directory.Config{Path: dir, Preallocate: true}); err != nil {
		t.Fatal(err)
	}
	_, err = s.Activate(t.Context(), "v-1")
	rig.Must(t, err)
	if u, err := s.Usage(t.Context()); err != nil || !u.Full {
		t.Errorf("%+v, %v", u, err)
	}
	rig.Must(t, s.Delete(t.Context(), "v-1"))
	if left := files(t, dir); !slices.Equal(left, before) {
		t.Errorf("left: %v", left)
	}
}
