package mounttest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/mount"
)

// Subject is a node under the contract: one in memory, or the running one.
type Subject interface {
	// Host is a new Host of the node, as a restarted process has.
	Host() *mount.Host
	// Device attaches a new blank device.
	Device(size uint64) Device
}

// Device is a block device of a Subject. Its content is read and written past any
// cache, and only while nobody has it mounted.
type Device interface {
	io.ReaderAt
	io.WriterAt
	Path() string
	// Resize gives it another size.
	Resize(size uint64)
	// Clone attaches another device with the same content, also of one mounted.
	Clone() Device
}

const deviceSize = 320 << 20 // bytes; the smallest XFS has 300 MiB

// Contract is what every node does. New makes an empty one for each test.
func Contract(t *testing.T, fresh func(t *testing.T) Subject) {
	for _, fsType := range []string{mount.Ext4, mount.XFS} {
		t.Run(fsType, func(t *testing.T) {
			for _, c := range contract {
				t.Run(c.name, func(t *testing.T) {
					c.test(&rig{T: t, Subject: fresh(t), fsType: fsType, dir: shortDir(t)})
				})
			}
			for _, point := range mount.Points {
				t.Run("AFormatCutShortAt/"+point, func(t *testing.T) {
					cutShortAt(&rig{T: t, Subject: fresh(t), fsType: fsType, dir: shortDir(t)}, point)
				})
			}
		})
	}
}

// shortDir is a scratch directory; mounts in it must be gone at the end.
func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "mnt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

type rig struct {
	*testing.T
	Subject
	fsType, dir string
}

func (r *rig) request(d Device) mount.Request {
	return mount.Request{Volume: "1.b.p.vol", Device: d.Path(), Target: filepath.Join(r.dir, filepath.Base(d.Path())), FSType: r.fsType, Blank: true}
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// refused wants an error of a kind.
func (r *rig) refused(err, want error) {
	r.Helper()
	if !errors.Is(err, want) {
		r.Fatalf("got %v, want %v", err, want)
	}
}

func (r *rig) stage(q mount.Request) mount.Report {
	r.Helper()
	rep, err := r.Host().Stage(r.Context(), q)
	r.must(err)
	target := q.Target
	r.Cleanup(func() { _ = r.Host().Unmount(contextOf(r.T), target) })
	return rep
}

func (r *rig) unstage(q mount.Request) {
	r.Helper()
	r.must(r.Host().Unmount(r.Context(), q.Target))
}

// formatted is a device with a file system that was mounted once, and is not now.
func (r *rig) formatted() (Device, mount.Request) {
	d := r.Device(deviceSize)
	q := r.request(d)
	r.stage(q)
	r.unstage(q)
	q.Blank = false
	return d, q
}

// head is the first 2 MiB of a device.
func (r *rig) head(d Device) []byte {
	r.Helper()
	b := make([]byte, 2<<20)
	_, err := d.ReadAt(b, 0)
	r.must(err)
	return b
}

var contract = []struct {
	name string
	test func(*rig)
}{
	{"ABlankVolumeIsFormattedOnceAndStagedAgainAsItIs", func(r *rig) {
		q := r.request(r.Device(deviceSize))
		if rep := r.stage(q); !rep.Formatted || rep.Resumed || rep.Mounted {
			r.Fatalf("first: %+v", rep)
		}
		if rep := r.stage(q); rep.Formatted || !rep.Mounted {
			r.Fatalf("again: %+v", rep)
		}
		r.unstage(q)
		r.unstage(q)
		if rep := r.stage(q); rep.Formatted || rep.Repaired || rep.Mounted || rep.Growth.To != rep.Growth.From {
			r.Fatalf("after an unstage: %+v", rep)
		}
	}},
	{"AZeroVolumeThatShouldHoldDataIsNotFormatted", func(r *rig) {
		d := r.Device(deviceSize)
		q := r.request(d)
		q.Blank = false
		_, err := r.Host().Stage(r.Context(), q)
		r.refused(err, mount.ErrNotBlank)
		r.untouched(d)
	}},
	{"TestD03WhatHoldsASignatureIsRefusedByName", func(r *rig) {
		for _, s := range Signatures[2:] {
			d := r.Device(deviceSize)
			_, err := d.WriteAt([]byte(s.Magic), s.Off)
			r.must(err)
			before := r.head(d)
			_, err = r.Host().Stage(r.Context(), r.request(d))
			r.refused(err, mount.ErrContent)
			if !bytes.Equal(before, r.head(d)) {
				r.Fatalf("%s was written to", s.Tags)
			}
		}
	}},
	{"TestD03OneByteThatIsNotZeroIsData", func(r *rig) {
		for _, off := range []int64{0, 777777, 2<<20 - 1} {
			d := r.Device(deviceSize)
			_, err := d.WriteAt([]byte{1}, off)
			r.must(err)
			_, err = r.Host().Stage(r.Context(), r.request(d))
			r.refused(err, mount.ErrContent)
		}
	}},
	{"TestD03AnotherFileSystemIsRefused", func(r *rig) {
		_, q := r.formatted()
		q.FSType, q.Blank = map[string]string{mount.Ext4: mount.XFS, mount.XFS: mount.Ext4}[r.fsType], true
		_, err := r.Host().Stage(r.Context(), q)
		r.refused(err, mount.ErrContent)
	}},
	{"TestD03AFileSystemLargerThanItsDeviceIsRefused", func(r *rig) {
		d, q := r.formatted()
		d.Resize(deviceSize / 2)
		_, err := r.Host().Stage(r.Context(), q)
		r.refused(err, mount.ErrTooSmall)
		if p, err := r.Host().Find(q.Target); err != nil || p != nil {
			r.Fatalf("mounted as %+v, %v", p, err)
		}
	}},
	{"TestD04AVolumeAndItsCloneAreMountedTogether", func(r *rig) {
		d := r.Device(deviceSize)
		q := r.request(d)
		r.stage(q)
		clone := r.request(d.Clone()) // of a mounted one: its journal is not empty
		clone.Volume, clone.Blank = "1.b.p.clone", false
		if rep := r.stage(clone); rep.Formatted {
			r.Fatal("the clone was formatted")
		}
		r.unstage(q)
		q.Blank = false
		r.stage(q) // the other order
	}},
	{"TestD05AClonesFileSystemGrowsToItsDevice", func(r *rig) {
		d, q := r.formatted()
		d.Resize(2 * deviceSize)
		if rep := r.stage(q); rep.Growth.From != deviceSize || rep.Growth.To != 2*deviceSize {
			r.Fatalf("grew %+v", rep.Growth)
		}
		if rep := r.stage(q); rep.Growth.From != rep.Growth.To {
			r.Fatalf("grew again: %+v", rep.Growth)
		}
		p, err := r.Host().Find(q.Target)
		r.must(err)
		if p == nil || p.ReadOnly {
			r.Fatalf("mounted as %+v", p)
		}
	}},
	{"AReadOnlyVolumeIsNotWrittenTo", func(r *rig) {
		d, q := r.formatted()
		before := r.head(d)
		q.ReadOnly = true
		d.Resize(2 * deviceSize)
		if rep := r.stage(q); rep.Formatted || rep.Growth != (mount.Growth{}) {
			r.Fatalf("%+v", rep)
		}
		if p, err := r.Host().Find(q.Target); err != nil || !p.ReadOnly {
			r.Fatalf("mounted as %+v, %v", p, err)
		}
		r.unstage(q)
		if !bytes.Equal(before, r.head(d)) {
			r.Fatal("it was written to")
		}
	}},
	{"AReadOnlyVolumeIsNotFormatted", func(r *rig) {
		d := r.Device(deviceSize)
		q := r.request(d)
		q.MountOptions = []string{"ro"}
		_, err := r.Host().Stage(r.Context(), q)
		r.refused(err, mount.ErrNotBlank)
		r.untouched(d)
	}},
	{"AnUnfinishedFormatOfAnotherVolumeIsNotOurs", func(r *rig) {
		d := r.Device(deviceSize)
		q := r.request(d)
		r.cut(q, "mount.format.intended")
		q.Volume = "1.b.p.other"
		_, err := r.Host().Stage(r.Context(), q)
		r.refused(err, mount.ErrContent)
	}},
	{"AnUnfinishedFormatIsRepeatedWhateverTheHint", func(r *rig) {
		d := r.Device(deviceSize)
		q := r.request(d)
		r.cut(q, "mount.format.made")
		q.Blank = false
		if rep := r.stage(q); !rep.Formatted || !rep.Resumed {
			if r.fsType != mount.XFS || rep.Formatted { // a complete XFS is confirmed
				r.Fatalf("%+v", rep)
			}
		}
	}},
	{"AMountOfSomethingElseAtTheTargetIsLeftAlone", func(r *rig) {
		q := r.request(r.Device(deviceSize))
		r.stage(q)
		other := r.request(r.Device(deviceSize))
		other.Target = q.Target
		_, err := r.Host().Stage(r.Context(), other)
		r.refused(err, mount.ErrOccupied)
	}},
	{"APublishedVolumeIsABindMount", bindMount},
	{"ADeviceIsPublishedAsItsNode", bindNode},
	{"StatisticsAreThoseOfTheFileSystem", func(r *rig) {
		q := r.request(r.Device(deviceSize))
		r.stage(q)
		s, err := r.Host().Stats(r.Context(), q.Target)
		r.must(err)
		if s.Bytes < deviceSize/2 || s.Bytes > deviceSize || s.BytesFree == 0 || s.BytesUsed+s.BytesFree > s.Bytes || s.Inodes != s.InodesUsed+s.InodesFree {
			r.Fatalf("%+v", s)
		}
		_, err = r.Host().Stats(r.Context(), r.dir)
		r.refused(err, mount.ErrNotMounted)
	}},
}

// untouched wants a device of zeroes.
func (r *rig) untouched(d Device) {
	r.Helper()
	if b := r.head(d); !bytes.Equal(b, make([]byte, len(b))) {
		r.Fatal("the device was written to")
	}
}

func bindMount(r *rig) {
	q := r.request(r.Device(deviceSize))
	pods := []string{filepath.Join(r.dir, "pods/a b/mount"), filepath.Join(r.dir, `pods/c\d`)}
	r.refused(r.Host().Bind(r.Context(), q.Target, pods[0], false), mount.ErrNotMounted)
	r.stage(q)
	for i, pod := range pods {
		for range 2 {
			r.must(r.Host().Bind(r.Context(), q.Target, pod, i == 1))
		}
		r.Cleanup(func() { _ = r.Host().Unmount(contextOf(r.T), pod) })
		p, err := r.Host().Find(pod)
		r.must(err)
		if p == nil || p.ReadOnly != (i == 1) || p.FSType != r.fsType {
			r.Fatalf("%s is %+v, not read-only %v", pod, p, i == 1)
		}
	}
	r.refused(r.Host().Bind(r.Context(), q.Target, pods[1], false), mount.ErrOccupied)
	all, err := r.Host().Mounts(q.Device)
	r.must(err)
	if len(all) != 3 {
		r.Fatalf("mounted %d times: %+v", len(all), all)
	}
	for _, pod := range pods {
		for range 2 {
			r.must(r.Host().Unmount(r.Context(), pod))
		}
		if _, err := os.Lstat(pod); !os.IsNotExist(err) {
			r.Fatalf("%s is still there: %v", pod, err)
		}
	}
	if p, err := r.Host().Find(q.Target); err != nil || p == nil {
		r.Fatalf("staged %v, %v", p, err)
	}
}

func bindNode(r *rig) {
	a, b := r.Device(deviceSize), r.Device(deviceSize)
	target := filepath.Join(r.dir, "pods/dev")
	r.Cleanup(func() { _ = r.Host().Unmount(contextOf(r.T), target) })
	for _, d := range []Device{a, a, b} { // b: as after a restart, with another device
		r.must(r.Host().BindDevice(r.Context(), d.Path(), target))
		if size, err := r.Host().DeviceSize(target); err != nil || size != deviceSize {
			r.Fatalf("the node has %d bytes, %v", size, err)
		}
	}
	for range 2 {
		r.must(r.Host().Unmount(r.Context(), target))
	}
	if _, err := os.Lstat(target); !os.IsNotExist(err) {
		r.Fatalf("%s is still there: %v", target, err)
	}
}
