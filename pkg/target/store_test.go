package target

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
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
