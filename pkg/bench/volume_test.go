package bench

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/target"
)

// volume is our target with stamped memory behind some portals.
func volume(t *testing.T, portals int) (VolumeOptions, *target.RAM) {
	t.Helper()
	ram := target.NewRAM(16 << 20)
	block := make([]byte, requestSize)
	for off := uint64(0); off < ram.Size(); off += requestSize {
		stamp(block, off)
		if err := ram.WriteAt(block, off); err != nil {
			t.Fatal(err)
		}
	}
	srv, err := target.New(target.Config{LUNs: []target.LUN{{Number: 0, Store: ram}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	o := VolumeOptions{Rounds: 1, Sample: quickSample, OpenTimeout: time.Minute,
		Config: device.Config{Protocol: device.ISCSI{Target: srv.Name(), Initiator: "iqn.2026-01.test:host"}, StateDir: dir, Logins: device.NewLogins()}}
	for i := range portals {
		p, err := srv.ListenPortal("127.0.0.1:0", target.PortalConfig{TPGT: uint16(i + 1)})
		if err != nil {
			t.Fatal(err)
		}
		o.Config.Portals = append(o.Config.Portals, p.Addr())
	}
	return o, ram
}

// overwritten counts the blocks of a range that lost their stamp.
func overwritten(t *testing.T, ram *target.RAM, from, to uint64) (n int) {
	t.Helper()
	block := make([]byte, requestSize)
	for off := from; off < to; off += requestSize {
		if err := ram.ReadAt(block, off); err != nil {
			t.Fatal(err)
		}
		if !stamped(block, off) {
			n++
		}
	}
	return n
}

func TestAVolumeIsMeasuredWithoutAWrite(t *testing.T) {
	o, ram := volume(t, 2)
	o.Plot = t.TempDir()
	steps, total := 0, 0
	o.Progress = func(done, of int, _ string) { steps, total = done+1, of }
	r, err := BenchVolume(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if steps != total || total == 0 {
		t.Errorf("%d steps of %d", steps, total)
	}
	if want := (6 + 3 + 5) * len(volumeReads); len(r.Figures) != want || len(r.Advice) != 3 || r.Paths != 2 || r.Writes {
		t.Errorf("%d figures, %d are wanted; %+v", len(r.Figures), want, r.Advice)
	}
	for _, a := range r.Advice {
		if a.Change || a.Reason == "" {
			t.Errorf("after one round: %+v", a)
		}
	}
	if n := overwritten(t, ram, 0, ram.Size()); n != 0 {
		t.Errorf("%d blocks were written", n)
	}
	if b, err := os.ReadFile(filepath.Join(o.Plot, "volume-merge-deadline.svg")); err != nil || !bytes.Contains(b, []byte("</svg>")) {
		t.Errorf("no SVG: %v", err)
	}
	var table bytes.Buffer
	if err := WriteVolumeTable(&table, r); err != nil || !strings.Contains(table.String(), `pathSelector: "service-time"`) {
		t.Errorf("table: %v\n%s", err, table.String())
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

func TestOnlyTheScratchRangeIsWritten(t *testing.T) {
	o, ram := volume(t, 1)
	o.From, o.To = 4<<20, 8<<20
	r, err := BenchVolume(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if want := (6 + 3) * 2 * len(volumeReads); len(r.Figures) != want || !r.Writes {
		t.Errorf("%d figures, %d are wanted", len(r.Figures), want)
	}
	if n := overwritten(t, ram, 0, o.From) + overwritten(t, ram, o.To, ram.Size()); n != 0 {
		t.Errorf("%d blocks outside of the range were written", n)
	}
	if overwritten(t, ram, o.From, o.To) == 0 {
		t.Error("nothing was written")
	}
}

func TestARangeOutsideOfTheVolumeIsRefused(t *testing.T) {
	for _, r := range [][2]uint64{{8 << 20, 32 << 20}, {0, 1 << 20}, {1 << 12, 8 << 20}, {8 << 20, 4 << 20}} {
		o, ram := volume(t, 1)
		o.From, o.To = r[0], r[1]
		if _, err := BenchVolume(t.Context(), o); err == nil || !strings.Contains(err.Error(), "scratch range") {
			t.Errorf("%v: %v", r, err)
		}
		if overwritten(t, ram, 0, ram.Size()) != 0 {
			t.Errorf("%v: written", r)
		}
	}
}

func TestAdviceNeedsMoreThanTheNoise(t *testing.T) {
	p := parameter{name: "p", values: []string{"a", "b", "c"}, judge: "w"}
	fig := func(value, workload string, ratio, sure, noise float64) VolumeFigure {
		return VolumeFigure{Parameter: "p", Value: value, Workload: workload, Ratio: ratio, sure: sure, Noise: noise}
	}
	for name, c := range map[string]struct {
		figures []VolumeFigure
		rounds  int
		value   string
	}{
		"better beyond the noise":       {[]VolumeFigure{fig("a", "w", 1, 1, .05), fig("b", "w", 1.2, 1.1, .05)}, 7, "b"},
		"inside the noise":              {[]VolumeFigure{fig("a", "w", 1, 1, .3), fig("b", "w", 1.2, 1.1, .3)}, 7, "a"},
		"not in all rounds":             {[]VolumeFigure{fig("a", "w", 1, 1, .05), fig("b", "w", 1.2, 0.9, .05)}, 7, "a"},
		"too few rounds":                {[]VolumeFigure{fig("a", "w", 1, 1, .05), fig("b", "w", 1.2, 1.1, .05)}, 6, "a"},
		"harms another workload":        {[]VolumeFigure{fig("b", "w", 1.2, 1.1, .05), fig("b", "x", 0.9, 0.9, .05)}, 7, "a"},
		"the first of equals":           {[]VolumeFigure{fig("b", "w", 1.2, 1.1, .05), fig("c", "w", 1.22, 1.1, .05)}, 7, "b"},
		"the better one":                {[]VolumeFigure{fig("b", "w", 1.2, 1.1, .05), fig("c", "w", 2, 1.1, .05)}, 7, "c"},
		"a workload it is not for gets": {[]VolumeFigure{fig("b", "x", 2, 2, .05)}, 7, "a"},
	} {
		if a := advise(p, c.figures, c.rounds); a.Value != c.value || a.Change != (c.value != "a") || a.Reason == "" {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

func TestNoiseIsWhatAllRoundsButTheWorstStayWithin(t *testing.T) {
	for _, c := range []struct {
		control []float64
		want    float64
	}{{nil, 1}, {[]float64{1.5}, .5}, {[]float64{1, 1.01, 0.99}, leastNoise}, {[]float64{1, 0.8, 3}, .2}} {
		if got := noiseOf(c.control); got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("%v: %v", c.control, got)
		}
	}
}
