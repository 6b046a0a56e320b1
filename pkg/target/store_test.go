package target

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// TestStoresBehaveLikeAByteArray runs each store beside the plainest one.
func TestStoresBehaveLikeAByteArray(t *testing.T) {
	const size = 5 << 20
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, st := range map[string]Store{"RAM": NewRAM(size), "file": file} {
		twin := make([]byte, size)
		rnd := rand.New(rand.NewPCG(1, 2))
		for range 300 {
			off, n := uint64(rnd.IntN(size/512-1))*512, uint64(0)
			n = min(uint64(1+rnd.IntN(4096))*512, size-off)
			p := pattern(int(n))
			p[0] = byte(rnd.Uint32())
			switch rnd.IntN(4) {
			case 0:
				err = st.WriteAt(p, off)
				copy(twin[off:], p)
			case 1:
				err = st.Zero(off, n)
				clear(twin[off : off+n])
			case 2:
				err = st.Flush()
			default:
				if err = st.ReadAt(p, off); !bytes.Equal(p, twin[off:off+n]) {
					t.Fatalf("%s: other bytes at %d+%d", name, off, n)
				}
			}
			if err != nil {
				t.Fatal(name, err)
			}
		}
		if st.Size() != size || st.Close() != nil {
			t.Errorf("%s: size %d", name, st.Size())
		}
	}
	if _, err := OpenFile(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("opened a file that is not there")
	}
}

func TestConfigurationsThatCannotWorkAreRefused(t *testing.T) {
	ram := NewRAM(1 << 20)
	for name, c := range map[string]Config{
		"no LUN": {}, "no store": {LUNs: []LUN{{}}}, "depth": {Depth: 5000, LUNs: []LUN{{Store: ram}}},
		"twice":      {LUNs: []LUN{{Store: ram}, {Store: ram}}},
		"number":     {LUNs: []LUN{{Store: ram, Number: 1 << 14}}},
		"block size": {LUNs: []LUN{{Store: ram, Device: Device{BlockSize: 520}}}},
		"size":       {LUNs: []LUN{{Store: ram, Device: Device{Size: 1000}}}},
		"burst":      {MaxBurst: 1, LUNs: []LUN{{Store: ram}}},
	} {
		if _, err := NewMachine(c); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// TestHolesAreThoseOfASlowTwin compares the map of a RAM store with a byte per
// page.
func TestHolesAreThoseOfASlowTwin(t *testing.T) {
	const size = 3<<20 + 5*512
	r, twin := NewRAM(size), make([]bool, (size+ramPage-1)/ramPage)
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		off := uint64(rnd.IntN(size/512)) * 512
		n := min(uint64(1+rnd.IntN(100))*512, size-off)
		if rnd.IntN(2) == 0 {
			_ = r.WriteAt(make([]byte, n), off)
			for p := off / ramPage; p <= (off+n-1)/ramPage; p++ {
				twin[p] = true
			}
		} else {
			_ = r.Zero(off, n)
			for p := range twin {
				if at := uint64(p) * ramPage; at >= off && min(at+ramPage, size) <= off+n {
					twin[p] = false
				}
			}
		}
		used := uint64(0)
		for p := range twin {
			if twin[p] {
				used++
			}
		}
		if r.Used() != used*ramPage {
			t.Fatalf("%d bytes used, want %d pages", r.Used(), used)
		}
		at := uint64(rnd.IntN(size/512)) * 512
		got, hole, _ := r.Mapped(at)
		end := at / ramPage
		for end < uint64(len(twin)) && twin[end] == twin[at/ramPage] {
			end++
		}
		if want := min(end*ramPage, size) - at; got != want || hole == twin[at/ramPage] {
			t.Fatalf("at %d: %d, hole %v, want %d", at, got, hole, want)
		}
	}
}

// openDirect opens a file for direct I/O, or says clearly that there is none.
func openDirect(t *testing.T, path string) *File {
	t.Helper()
	f, err := OpenFileWith(path, Options{Direct: true, WriteThrough: true})
	if err != nil {
		if !strings.Contains(err.Error(), "no direct I/O") {
			t.Fatal(err)
		}
		t.Logf("the file system of the test's folder: %v", err)
		return nil
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func diskFile(t *testing.T, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDirectFilesTakeMemoryOfAnyAlignment(t *testing.T) {
	f := openDirect(t, diskFile(t, 4<<20))
	if f == nil {
		return
	}
	want := pattern(1 << 20)
	odd := append([]byte{0}, want...)[1:]
	if err := f.WriteAt(odd, 4096); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want)+1)[1:]
	if err := f.ReadAt(got, 4096); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v, equal %v", err, bytes.Equal(got, want))
	}
	if err := f.Zero(4096, 8192); err != nil || f.Flush() != nil {
		t.Fatal(err)
	}
	if err := f.ReadAt(got[:8192], 4096); err != nil || !allZero(got[:8192]) {
		t.Errorf("%v: not zero", err)
	}
}

// coarse is a store that does direct I/O in blocks of 4096 bytes.
type coarse struct{ plain }

func (coarse) Alignment() uint64 { return 4096 }

func TestBlocksSmallerThanDirectIOTakesAreRefused(t *testing.T) {
	st := coarse{plain{NewRAM(1 << 20)}}
	if _, err := NewMachine(Config{LUNs: []LUN{{Store: st}}}); err == nil || !strings.Contains(err.Error(), "4096 bytes") {
		t.Error(err)
	}
	if _, err := NewMachine(Config{LUNs: []LUN{{Store: st, Device: Device{BlockSize: 4096}}}}); err != nil {
		t.Error(err)
	}
}

func TestAFileKnowsItsHoles(t *testing.T) {
	f, err := OpenFile(diskFile(t, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := f.WriteAt(pattern(65536), 262144); err != nil || f.Flush() != nil {
		t.Fatal(err)
	}
	list, err := status(f, false, 0, f.Size(), 512, 16)
	if err != nil {
		t.Fatal(err)
	}
	at := uint64(0)
	for _, s := range list { // in order, without gaps; what was written is no hole
		if s.LBA != at || s.Hole && s.LBA < 640 && s.LBA+uint64(s.Blocks) > 512 {
			t.Errorf("%v", list)
		}
		at += uint64(s.Blocks)
	}
	if at != 2048 {
		t.Errorf("%v ends at %d", list, at)
	}
}

func TestAWriteThroughFileHasNoCache(t *testing.T) {
	f, err := OpenFileWith(diskFile(t, 1<<20), Options{WriteThrough: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	c := newRig(t, func(c *Config) { c.LUNs[0].Store = f }).session(1, 1)
	if c.caching().WCE {
		t.Error("it says it has one")
	}
	c.fails(c.selects((&scsi.Caching{WCE: true}).Page()), scsi.SenseInvalidParam)
	c.good(c.writeCmd(0, block(1, 1)))
}
