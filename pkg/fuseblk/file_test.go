package fuseblk

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/nbdtest"
)

const size = 8 << 20

// over is the file system over an export.
func over(t *testing.T, e nbd.Export) *fileSystem {
	t.Helper()
	p, err := newPort(e)
	if err != nil {
		t.Fatal(err)
	}
	return newFileSystem(p)
}

func ram(t *testing.T, block uint32) *nbdtest.RAM {
	t.Helper()
	m, err := nbdtest.NewRAM(size, block)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func write(f *fileSystem, off uint64, b []byte) fuse.Status {
	n, st := f.Write(nil, &fuse.WriteIn{Offset: off}, b)
	if st == fuse.OK && int(n) != len(b) {
		return fuse.EIO
	}
	return st
}

func read(f *fileSystem, off uint64, n int) ([]byte, fuse.Status) {
	buf := make([]byte, n)
	res, st := f.Read(nil, &fuse.ReadIn{Offset: off, Size: uint32(n)}, buf)
	if st != fuse.OK {
		return nil, st
	}
	b, st := res.Bytes(nil)
	return b, st
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	m := ram(t, 512)
	f, twin := over(t, m), make([]byte, size)
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		off, n := r.Uint64N(size/512-64)*512, (1+r.Uint64N(64))*512
		switch r.IntN(3) {
		case 0:
			b := bytes.Repeat([]byte{byte(r.Uint32())}, int(n))
			copy(twin[off:], b)
			if st := write(f, off, b); st != fuse.OK {
				t.Fatal(st)
			}
		case 1:
			clear(twin[off : off+n])
			if st := f.Fallocate(nil, &fuse.FallocateIn{Offset: off, Length: n, Mode: unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE}); st != fuse.OK {
				t.Fatal(st)
			}
		case 2:
			if b, st := read(f, off, int(n)); st != fuse.OK || !bytes.Equal(b, twin[off:off+n]) {
				t.Fatalf("%d bytes at %d differ (%v)", n, off, st)
			}
		}
	}
	if !bytes.Equal(m.Bytes(), twin) {
		t.Fatal("the device differs")
	}
}

func TestTheEndOfTheDeviceIsTheEndOfTheFile(t *testing.T) {
	f := over(t, ram(t, 4096))
	if b, st := read(f, size-4096, 8192); st != fuse.OK || len(b) != 4096 {
		t.Errorf("over the end: %d bytes, %v", len(b), st)
	}
	if b, st := read(f, size, 4096); st != fuse.OK || len(b) != 0 {
		t.Errorf("behind the end: %d bytes, %v", len(b), st)
	}
	for _, off := range []uint64{size - 4096, size, 1 << 62} {
		if st := write(f, off, make([]byte, 8192)); st != fuse.Status(unix.ENOSPC) {
			t.Errorf("a write at %d: %v", off, st)
		}
	}
}

func TestPartsOfBlocksAreRefused(t *testing.T) {
	f := over(t, ram(t, 4096))
	for _, c := range [][2]uint64{{512, 4096}, {0, 512}, {4096, 4097}} {
		if _, st := read(f, c[0], int(c[1])); st != fuse.EINVAL {
			t.Errorf("read %v: %v", c, st)
		}
		if st := write(f, c[0], make([]byte, c[1])); st != fuse.EINVAL {
			t.Errorf("write %v: %v", c, st)
		}
	}
}

func TestThereIsOneFileAndItHasTheDevicesSize(t *testing.T) {
	m := ram(t, 4096)
	f := over(t, m)
	var e fuse.EntryOut
	if st := f.Lookup(nil, &fuse.InHeader{NodeId: fuse.FUSE_ROOT_ID}, fileName, &e); st != fuse.OK || e.Size != size || e.NodeId != fileNode {
		t.Fatalf("%v, %+v", st, e)
	}
	if st := f.Lookup(nil, &fuse.InHeader{NodeId: fuse.FUSE_ROOT_ID}, "other", &e); st != fuse.ENOENT {
		t.Fatalf("another file: %v", st)
	}
	i := m.Info()
	i.Size = size / 2
	m.Set(i)
	var a fuse.AttrOut
	if st := f.GetAttr(nil, &fuse.GetAttrIn{InHeader: fuse.InHeader{NodeId: fileNode}}, &a); st != fuse.OK || a.Size != size/2 || a.AttrValid != 0 {
		t.Fatalf("%v, %+v", st, a)
	}
}

func TestASyncIsAFlush(t *testing.T) {
	m := ram(t, 512)
	f := over(t, m)
	if st := f.Fsync(nil, &fuse.FsyncIn{}); st != fuse.OK || m.Flushes.Load() != 1 {
		t.Fatalf("%v, %d flushes", st, m.Flushes.Load())
	}
}

func TestALongRangeIsClearedInParts(t *testing.T) {
	m := ram(t, 4096)
	i := m.Info()
	i.Size = 5 << 30
	m.Set(i)
	h := nbdtest.NewHeld(m)
	f := over(t, h)
	ended := make(chan fuse.Status, 1)
	go func() {
		ended <- f.Fallocate(nil, &fuse.FallocateIn{Offset: 4096, Length: 1 << 62, Mode: unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE})
	}()
	next := uint64(4096)
	for next < i.Size {
		r := <-h.Got
		if r.Op != blk.WriteZeroes || r.Flags != blk.NoUnmap || r.Off != next || r.Len > maxRange {
			t.Fatalf("%v %d at %d, want %d", r.Op, r.Len, r.Off, next)
		}
		next = r.End()
		r.Owner.Complete(r)
	}
	if st := <-ended; st != fuse.OK || next != i.Size {
		t.Fatalf("%v, up to %d", st, next)
	}
}

func TestWhatTheDeviceCannotClearTheKernelClears(t *testing.T) {
	m := ram(t, 512)
	i := m.Info()
	i.Limits.MaxZero = 0
	m.Set(i)
	f := over(t, m)
	for _, mode := range []uint32{0, unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_COLLAPSE_RANGE} {
		if st := f.Fallocate(nil, &fuse.FallocateIn{Length: 4096, Mode: mode}); st != fuse.Status(unix.EOPNOTSUPP) {
			t.Errorf("mode %#x: %v", mode, st)
		}
	}
}

func TestEveryOutcomeHasAnErrorTheKernelUnderstands(t *testing.T) {
	for s := blk.OK; s <= blk.Cancelled; s++ {
		if e := errnoOf(s); (e == 0) != (s == blk.OK) {
			t.Errorf("%v: %v", s, e)
		}
	}
}

func TestNoMoreThanDepthRequestsAreOutstanding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := nbdtest.NewHeld(ram(t, 512))
		f := over(t, h)
		var wg sync.WaitGroup
		for i := range Depth + 5 {
			wg.Go(func() { _, _ = read(f, uint64(i)*512, 512) })
		}
		synctest.Wait()
		if len(h.Got) != Depth {
			t.Fatalf("%d outstanding", len(h.Got))
		}
		for range Depth + 5 {
			h.Finish(<-h.Got)
		}
		wg.Wait()
	})
}

func TestAClosedPortRefusesWhatComesLaterAndWaitsForNoAnswerTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := nbdtest.NewHeld(ram(t, 512))
		f := over(t, h)
		ended := make(chan fuse.Status, 1)
		go func() {
			_, st := read(f, 0, 512)
			ended <- st
		}()
		r := <-h.Got
		f.p.close()
		f.p.close()
		<-h.Closed
		if _, st := read(f, 0, 512); st != fuse.EIO {
			t.Fatalf("after the end: %v", st)
		}
		r.Status = blk.Cancelled
		r.Owner.Complete(r)
		if st := <-ended; st != fuse.EIO {
			t.Fatalf("cancelled: %v", st)
		}
	})
}
