//go:build interop

package interop

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/test/interop/rig"
	"github.com/csi-mpath/csi-mpath/test/interop/tgt"
	"github.com/csi-mpath/csi-mpath/test/probe"
)

const mib = 1 << 20

// binary is the product under test; `make interop` builds and names it.
func binary(t *testing.T) string {
	t.Helper()
	bin := os.Getenv("CSI_MPATH_BIN")
	if bin == "" {
		t.Fatal("CSI_MPATH_BIN does not name the csi-mpath binary: run make interop")
	}
	return bin
}

func start(t *testing.T, opt rig.Options) *rig.Rig {
	t.Helper()
	opt.Bin = binary(t)
	if opt.Size == 0 {
		opt.Size = 256 * mib
	}
	r, err := rig.Start(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// overBoth tells a story over iSCSI, above tgt, and over NVMe/TCP, above a target
// of our own.
func overBoth(t *testing.T, story func(t *testing.T, opt rig.Options)) {
	t.Run("iSCSI", func(t *testing.T) { story(t, rig.Options{}) })
	t.Run("NVMe", func(t *testing.T) { story(t, rig.Options{Own: true, NVMe: true}) })
}

// fio starts a verifying load.
func fio(t *testing.T, r *rig.Rig, d time.Duration) *rig.Fio {
	t.Helper()
	f, err := rig.StartFio(rig.Load{Socket: r.Socket, Dir: r.Dir, Size: 32 * mib, Jobs: 4, Depth: 8, Block: "4k", Runtime: d})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Kill)
	return f
}

func finish(t *testing.T, f *rig.Fio) {
	t.Helper()
	res, err := f.Wait(3 * time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if res.Reads == 0 || res.Writes == 0 {
		t.Fatalf("fio did nothing: %+v", res)
	}
	t.Logf("%d reads, %d writes, longest %v and %v", res.Reads, res.Writes, res.LongestRead, res.LongestW)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestALoadSurvivesAKilledTargetAndItsReturn(t *testing.T) {
	overBoth(t, func(t *testing.T, opt rig.Options) {
		r := start(t, opt)
		f := fio(t, r, 8*time.Second)
		rig.Pause(t.Context(), time.Second)
		r.Paths[0].Kill()
		must(t, r.WaitDown(t.Context(), r.Paths[0]))
		must(t, r.Paths[0].Revive(t.Context()))
		must(t, r.WaitUp(t.Context(), 2))
		finish(t, f)
	})
}

func TestALoadSurvivesABlackHole(t *testing.T) {
	overBoth(t, func(t *testing.T, opt rig.Options) {
		r := start(t, opt)
		f := fio(t, r, 12*time.Second)
		rig.Pause(t.Context(), time.Second)
		r.Paths[1].BlackHole()
		must(t, r.WaitDown(t.Context(), r.Paths[1]))
		r.Paths[1].Restore()
		must(t, r.WaitUp(t.Context(), 2))
		finish(t, f)
	})
}

func TestALoadWaitsWhileNoPathIsThere(t *testing.T) {
	overBoth(t, func(t *testing.T, opt rig.Options) {
		r := start(t, opt)
		f := fio(t, r, 8*time.Second)
		rig.Pause(t.Context(), time.Second)
		for _, p := range r.Paths {
			p.Kill()
		}
		rig.Pause(t.Context(), 2*time.Second)
		for _, p := range r.Paths {
			must(t, p.Revive(t.Context()))
		}
		must(t, r.WaitUp(t.Context(), 2))
		finish(t, f)
	})
}

// I11.
func TestALostPathDoesNotReconnectItsSibling(t *testing.T) {
	overBoth(t, func(t *testing.T, opt rig.Options) {
		r := start(t, opt)
		f := fio(t, r, 6*time.Second)
		rig.Pause(t.Context(), time.Second)
		before, err := r.Connects(t.Context(), r.Paths[1])
		must(t, err)
		for range 3 {
			n, err := r.Connects(t.Context(), r.Paths[0])
			must(t, err)
			r.Paths[0].Reset()
			must(t, r.WaitBack(t.Context(), r.Paths[0], n))
		}
		finish(t, f)
		if now, err := r.Connects(t.Context(), r.Paths[1]); now != before {
			t.Fatalf("path B connected %d times while path A was reset (%v)", now-before, err)
		}
	})
}

func TestAVolumeOf4096ByteBlocksWorks(t *testing.T) {
	r := start(t, rig.Options{Target: func(c *tgt.Config) { c.Block = 4096 }})
	finish(t, fio(t, r, 2*time.Second))
}

// I1.
func TestAPathToAnotherUnitIsRefused(t *testing.T) {
	r := start(t, rig.Options{Up: 1, Target: func(c *tgt.Config) {
		if c.Name == "b" {
			c.Serial = "SN0002"
		}
	}})
	finish(t, fio(t, r, 2*time.Second))
	must(t, r.WaitStates(t.Context(), "live", "quarantined"))
}

func TestSIGTERMDrainsAndEndsCleanly(t *testing.T) {
	overBoth(t, func(t *testing.T, opt rig.Options) {
		r := start(t, opt)
		finish(t, fio(t, r, time.Second))
		if err := r.Detach(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(r.Socket); !os.IsNotExist(err) {
			t.Fatalf("the socket was left behind (%v)", err)
		}
	})
}

// I4: what was answered and flushed is there, whatever happens to the process.
func TestFlushedWritesSurviveAKilledProduct(t *testing.T) {
	overBoth(t, func(t *testing.T, opt rig.Options) {
		r := start(t, opt)
		block := func(i int) []byte { return bytes.Repeat([]byte{byte(i), byte(i >> 8), 0x5a, 0xa5}, 1024) }
		c, err := probe.Dial(t.Context(), r.Socket)
		must(t, err)
		const blocks = 500
		for i := range blocks {
			must(t, c.Write(uint64(i)*4096, block(i)))
		}
		must(t, c.Flush())
		r.KillProduct()
		must(t, r.Attach(t.Context()))
		if c, err = probe.Dial(t.Context(), r.Socket); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 4096)
		for i := range blocks {
			must(t, c.Read(uint64(i)*4096, got))
			if !bytes.Equal(got, block(i)) {
				t.Fatalf("block %d differs", i)
			}
		}
		must(t, c.Close())
	})
}

func TestDiscoverListsWhatTheTargetOffers(t *testing.T) {
	r := start(t, rig.Options{})
	out, err := r.Run(t.Context(), "discover", r.Paths[0].Portal())
	must(t, err)
	if !strings.Contains(out, tgt.PairTarget) {
		t.Fatalf("no %s in %q", tgt.PairTarget, out)
	}
}

func TestPathsTellsAPersonAndAProgramTheSame(t *testing.T) {
	overBoth(t, func(t *testing.T, opt rig.Options) {
		r := start(t, opt)
		table, err := r.Table(t.Context())
		must(t, err)
		text, err := r.Table(t.Context(), "-o", "json")
		must(t, err)
		var volumes []struct {
			Paths []struct {
				Path, State string
			}
		}
		must(t, json.Unmarshal([]byte(text), &volumes))
		if len(volumes) != 1 || len(volumes[0].Paths) != 2 {
			t.Fatalf("want one volume of two paths: %s", text)
		}
		for i, p := range volumes[0].Paths {
			if p.Path != r.Paths[i].Portal() || p.State != "live" || !strings.Contains(table, p.Path+"  live") {
				t.Errorf("path %+v: not live, not %s, or not in the table:\n%s", p, r.Paths[i].Portal(), table)
			}
		}
	})
}

// A harness that cannot fail proves nothing: fio must see a byte that changed
// behind its back.
func TestTheLoadNoticesAByteThatChanged(t *testing.T) {
	r := start(t, rig.Options{})
	f := fio(t, r, time.Minute) // it ends at the first byte that differs
	rig.Pause(t.Context(), 500*time.Millisecond)
	disk, err := os.OpenFile(r.File(), os.O_RDWR, 0)
	must(t, err)
	defer func() { _ = disk.Close() }()
	junk := make([]byte, 64*1024)
	for f.Running() && t.Context().Err() == nil {
		for off := int64(0); off < 128*mib; off += int64(len(junk)) {
			_, err := disk.WriteAt(junk, off)
			must(t, err)
		}
	}
	if _, err := f.Wait(time.Second); err == nil || !strings.Contains(err.Error(), "verify") {
		t.Fatalf("got %v, want a failed verification", err)
	}
}
