package device_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target"
)

func TestEveryOperationWorksOverTwoPaths(t *testing.T) {
	overBoth(t, func(t *testing.T, over kind) {
		r := over(t, 2)
		r.open(r.config(), 2)
		for i := range 40 {
			n := 512 << (i % 10)
			if q := r.do(blk.Write, uint64(i)*4096%(1<<19), n, uint64(i+1)); q.Status != blk.OK {
				t.Fatalf("write of %d bytes: %v", n, q.Status)
			}
			rd := r.do(blk.Read, uint64(i)*4096%(1<<19), n, 0)
			want := bytes.Repeat([]byte{byte(i + 1), 0, 0, 0, 0, 0, 0, 0}, n/8)
			if rd.Status != blk.OK || !bytes.Equal(rd.Buf, want) {
				t.Fatalf("read of %d bytes: %v, or other data", n, rd.Status)
			}
		}
		for _, op := range []blk.Op{blk.Flush, blk.Trim, blk.WriteZeroes} {
			n := 65536
			if op == blk.Flush {
				n = 0
			}
			if q := r.do(op, 0, n, 0); q.Status != blk.OK {
				t.Fatalf("%v: %v", op, q.Status)
			}
		}
		if r.content(0) != 0 {
			t.Fatal("write-zeroes left data")
		}
	})
}

// facts/datapath.md 4 row 1, with real sockets: the lost path's target holds a
// write, its retry and a newer write go elsewhere, then the old one executes.
func TestB18AWriteHeldInALostPathsTargetDoesNotWin(t *testing.T) {
	overBoth(t, func(t *testing.T, over kind) {
		inTime(t, func(t *testing.T, fence time.Duration) (late bool) {
			r := over(t, 2)
			cfg := r.config()
			cfg = fencedAfter(cfg, fence)
			r.open(cfg, 2)
			hold, err := r.base.Hold(target.Match{Kind: target.Writes, Count: 1}, true)
			if err != nil {
				t.Fatal(err)
			}
			w1 := r.send(blk.Write, 0, 4096, 1)
			<-hold.Arrived()
			lost, start := r.portals[r.busyPath()], time.Now()
			lost.Kill() // connection gone, and no new one
			r.until("the retry answered", func() bool { _, ok := r.answered(w1); return ok })
			w2 := r.send(blk.Write, 0, 4096, 2)
			hold.Release() // the dead session's write executes now
			r.until("the late write executed", func() bool { return hold.Len() == 0 })
			if time.Since(start) >= fence || r.lateWrites() == 0 {
				return true // or its controller was out of keep alive by then
			}
			if _, early := r.answered(w2); early && r.saw(datapath.Fenced) == 0 {
				t.Fatal("the newer write was answered before the fence")
			}
			r.until("the newer write answered", func() bool { _, ok := r.answered(w2); return ok })
			if got := r.content(0); got != 2 {
				t.Fatalf("the block holds write %d, want 2", got)
			}
			r.until("the Fenced event", func() bool { return r.saw(datapath.Fenced) == 1 })
			return false
		})
	})
}

// busyPath is the index of the path with a command in flight.
func (r *rig) busyPath() int {
	for i, p := range r.dev.Status().Paths {
		if p.Commands > 0 {
			return i
		}
	}
	r.Fatal("no path has a command in flight")
	return -1
}

func TestReturningToTheSamePortalFencesAtOnce(t *testing.T) {
	r := newRig(t, 2, target.Config{})
	cfg := r.config()
	cfg = fencedAfter(cfg, time.Hour) // only a proof can end the wait
	r.open(cfg, 2)
	hold, err := r.base.Hold(target.Match{Kind: target.Writes, Count: 1}, true)
	if err != nil {
		t.Fatal(err)
	}
	w1 := r.send(blk.Write, 0, 4096, 1)
	<-hold.Arrived()
	r.portals[r.busyPath()].Drop()
	r.until("the retry answered", func() bool { _, ok := r.answered(w1); return ok })
	if q := r.do(blk.Write, 0, 4096, 2); q.Status != blk.OK || r.content(0) != 2 {
		t.Fatalf("%v, block holds %d", q.Status, r.content(0))
	}
	hold.Release()
	if r.content(0) != 2 {
		t.Fatal("a reinstated session's write executed")
	}
}

func TestOtherIdentitiesBehindOnePortalAreRefusedBeforeAnyWrite(t *testing.T) {
	overBoth(t, func(t *testing.T, over kind) {
		for name, other := range map[string]volume{
			"another identity":   {id: 0xb},
			"another block size": {id: 0xa, blockSize: 4096},
			"a smaller size":     {id: 0xa, size: 1 << 19},
		} {
			t.Run(name, func(t *testing.T) {
				r := over(t, 2)
				r.show(r.portals[0], volume{id: 0xa})
				r.show(r.portals[1], other)
				r.refusedBeforeAnyWrite()
			})
		}
	})
}

func TestAnotherSerialBehindOnePortalIsRefused(t *testing.T) {
	r := newRig(t, 2, target.Config{})
	for i, serial := range []string{"SN1", "SN2"} {
		if err := r.srv.SetDevice(r.portals[i].Number(), 1, target.Device{
			Identity: scsi.Identity{NAA: "6000000000000000000000000000000a", Serial: serial}}); err != nil {
			t.Fatal(err)
		}
	}
	r.refusedBeforeAnyWrite()
}

// refusedBeforeAnyWrite: the second portal comes up when the first is in use, and
// shows another volume.
func (r *rig) refusedBeforeAnyWrite() {
	r.Helper()
	r.portals[1].Stop()
	r.open(r.config(), 1)
	writes, err := r.base.Hold(target.Match{Kind: target.Writes, Portal: r.portals[1].Number()}, false)
	if err != nil {
		r.Fatal(err)
	}
	if err := r.portals[1].Start(); err != nil {
		r.Fatal(err)
	}
	r.until("the mismatch seen", func() bool { return r.saw(datapath.PathIdentityMismatch) == 1 })
	for i := range 8 {
		r.do(blk.Write, uint64(i)*4096, 4096, 1)
	}
	st := r.dev.Status().Paths[1]
	if st.State != "quarantined" || !strings.Contains(st.LastError, "identity mismatch") || writes.Len() != 0 {
		r.Fatalf("path %+v, %d writes reached it", st, writes.Len())
	}
}

func TestALUNRemappedUnderIOIsQuarantinedAndGetsNoByte(t *testing.T) {
	overBoth(t, func(t *testing.T, over kind) {
		r := over(t, 1)
		r.open(r.config(), 1)
		r.do(blk.Write, 0, 4096, 1)
		r.show(r.portals[0], volume{id: 0xb})
		r.hint(r.portals[0], false)
		r.until("the hint taken", func() bool { return r.sub == nil || r.saw(datapath.PathIdentityMismatch) == 1 })
		w := r.send(blk.Write, 0, 4096, 2)
		r.until("the mismatch seen", func() bool { return r.saw(datapath.PathIdentityMismatch) == 1 })
		if _, ok := r.answered(w); ok || r.content(0) != 1 {
			t.Fatalf("the write reached the other volume: %d", r.content(0))
		}
	})
}

func TestAnOnlineResizeGrowsTheDevice(t *testing.T) {
	overBoth(t, func(t *testing.T, over kind) {
		r := over(t, 2)
		set := func(size uint64) {
			for _, p := range r.portals {
				r.show(p, volume{id: 0xa, size: size})
			}
		}
		set(1 << 19)
		r.open(r.config(), 2)
		set(1 << 20)
		for _, p := range r.portals {
			r.hint(p, true)
		}
		r.until("growth", func() bool {
			r.do(blk.Read, 0, 4096, 0) // meets the attention, on one path after the other
			return r.dev.Info().Size == 1<<20
		})
		if q := r.do(blk.Write, 1<<19, 4096, 3); q.Status != blk.OK {
			t.Fatalf("write into the new part: %v", q.Status)
		}
	})
}

func TestTheSameVolumeIsNotAttachedTwice(t *testing.T) {
	r := newRig(t, 1, target.Config{})
	cfg := r.config()
	r.open(cfg, 1)
	if _, err := device.Open(context.Background(), cfg); err == nil || !strings.Contains(err.Error(), "attached already") {
		t.Fatalf("%v", err)
	}
}

func TestStatusIsReadableByAnotherProcess(t *testing.T) {
	overBoth(t, func(t *testing.T, over kind) {
		r := over(t, 2)
		cfg := r.config()
		r.open(cfg, 2)
		all, err := device.ReadStatus(cfg.StateDir)
		if err != nil || len(all) != 1 || len(all[0].Paths) != 2 || all[0].Paths[0].State != "live" {
			t.Fatalf("%+v, %v", all, err)
		}
	})
}

func TestAnOperatorDrainsAPathFromOutside(t *testing.T) {
	overBoth(t, func(t *testing.T, over kind) {
		r := over(t, 2)
		cfg := r.config()
		r.open(cfg, 2)
		name, path := r.dev.Status().Name, r.dev.Status().Paths[0].Name
		st, err := device.Do(cfg.StateDir, name, device.OrderDrain, path)
		if err != nil || st.Paths[0].Group != "drained" || st.Paths[0].InUse || !st.Paths[1].InUse {
			t.Fatalf("%+v, %v", st, err)
		}
		if st, err = device.Do(cfg.StateDir, name, device.OrderEnable, path); err != nil || !st.Paths[0].InUse {
			t.Fatalf("%+v, %v", st, err)
		}
	})
}

func TestOrdersThatCannotBeCarriedOutSayWhy(t *testing.T) {
	r := newRig(t, 1, target.Config{})
	cfg := r.config()
	r.open(cfg, 1)
	name, path := r.dev.Status().Name, r.dev.Status().Paths[0].Name
	for _, c := range []struct {
		volume string
		order  device.Order
		path   string
		want   string
	}{
		{name, device.OrderDrain, path, "last usable path"},
		{name, device.OrderPrefer, "192.0.2.1:3260", "no such path"},
		{"nobody", device.OrderDrain, path, "not attached"},
		{name, "explode", path, "not known"},
	} {
		if _, err := device.Do(cfg.StateDir, c.volume, c.order, c.path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: got %v, want %q", c.order, c.path, err, c.want)
		}
	}
}

func TestAClientThatAsksNothingGetsTheStatusAndBlocksNobody(t *testing.T) {
	r := newRig(t, 1, target.Config{})
	cfg := r.config()
	r.open(cfg, 1)
	names, err := filepath.Glob(filepath.Join(cfg.StateDir, "*.ctl"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	mute, err := net.Dial("unix", names[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mute.Close() }()
	if all, err := device.ReadStatus(cfg.StateDir); err != nil || len(all) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	var st datapath.Status
	if err := json.NewDecoder(mute).Decode(&st); err != nil || len(st.Paths) != 1 {
		t.Fatalf("%+v, %v", st, err)
	}
}

func TestADeadPortalDoesNotDelayOpening(t *testing.T) {
	overBoth(t, func(t *testing.T, over kind) {
		r := over(t, 2)
		r.portals[0].Stop()
		cfg := r.config()
		start := time.Now()
		r.open(cfg, 1)
		if d := time.Since(start); d > patience/4 {
			t.Fatalf("opening took %v", d)
		}
	})
}

func TestOpenErrorsNamePortalAndCause(t *testing.T) {
	overBoth(t, func(t *testing.T, over kind) {
		r := over(t, 1)
		for name, c := range map[string]struct {
			change func(*device.Config)
			want   string
			limit  time.Duration // the first waits for all of it
		}{
			"unreachable":  {func(c *device.Config) { r.portals[0].Stop() }, "connection refused", 2 * time.Second},
			"wrong target": {func(c *device.Config) { c.Protocol = r.elsewhere(true, false) }, "not", patience},
			"wrong LUN":    {func(c *device.Config) { c.Protocol = r.elsewhere(false, true) }, " 7", patience},
		} {
			t.Run(name, func(t *testing.T) {
				cfg := r.config()
				c.change(&cfg)
				defer func() { _ = r.portals[0].Start() }()
				ctx, cancel := context.WithTimeout(context.Background(), c.limit)
				defer cancel()
				_, err := device.Open(ctx, cfg)
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), cfg.Portals[0]) {
					t.Fatalf("want %q and the portal, got: %v", c.want, err)
				}
			})
		}
	})
}

func TestTunablesAreChangedWhileIORuns(t *testing.T) {
	overBoth(t, func(t *testing.T, over kind) {
		r := over(t, 2)
		cfg := r.config()
		r.open(cfg, 2)
		name := r.dev.Status().Name
		for _, v := range [][2]string{{"merge-deadline", "20us"}, {"polling", "adaptive"}, {"merge-deadline", "auto"}, {"polling", "50us"},
			{"path-selector", "historical-service-time"}, {"merge-deadline", "off"}, {"path-selector", "io-affinity"},
			{"polling", "off"}, {"merge-deadline", "0"}} {
			if _, err := device.Tune(cfg.StateDir, name, v[0], v[1]); err != nil {
				t.Fatal(err)
			}
			for i := range 20 {
				if q := r.do(blk.Write, uint64(i)*4096, 4096, 1); q.Status != blk.OK {
					t.Fatal(q.Status)
				}
			}
		}
		if st, err := device.Tune(cfg.StateDir, name, "merge-deadline", "20us"); err != nil || st.Merge.Deadline != 20*time.Microsecond ||
			st.Merge.Auto || st.Selector != "io-affinity" {
			t.Fatalf("%s, %+v, %v", st.Selector, st.Merge, err)
		}
		for _, v := range [][2]string{{"merge-deadline", "a while"}, {"polling", "1h"}, {"path-selector", "best"}, {"colour", "red"}} {
			if _, err := device.Tune(cfg.StateDir, name, v[0], v[1]); err == nil {
				t.Errorf("%v was accepted", v)
			}
		}
	})
}
