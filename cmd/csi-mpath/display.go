package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
)

// display prints events, and on a terminal keeps a live table below them.
type display struct {
	live bool

	mu    sync.Mutex
	out   io.Writer
	lines int // of the table on the screen
	dev   *device.Device
	quit  chan struct{}
	done  sync.WaitGroup
}

func newDisplay(out io.Writer) *display {
	d := &display{out: out, quit: make(chan struct{})}
	if f, ok := out.(*os.File); ok {
		st, err := f.Stat()
		d.live = err == nil && st.Mode()&os.ModeCharDevice != 0
	}
	return d
}

func (d *display) line(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wipe()
	fmt.Fprintf(d.out, "%s  %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
	d.draw()
}

func (d *display) event(e datapath.Event) {
	if e.Path == "" {
		d.line("%s: %s", e.Kind, e.Detail)
		return
	}
	d.line("%s %s: %s", e.Kind, e.Path, e.Detail)
}

// ready says where the volume is, and starts the table.
func (d *display) ready(dev *device.Device, places []string) {
	info := dev.Info()
	d.line("serving %s (%s) on %s", info.Name, sizeText(info.Size), strings.Join(places, " and "))
	if !d.live {
		return
	}
	d.mu.Lock()
	d.dev = dev
	d.mu.Unlock()
	d.done.Go(func() {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-d.quit:
				return
			case <-t.C:
				d.mu.Lock()
				d.wipe()
				d.draw()
				d.mu.Unlock()
			}
		}
	})
}

// stop leaves the last table on the screen.
func (d *display) stop() {
	close(d.quit)
	d.done.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dev, d.lines = nil, 0
}

func (d *display) wipe() {
	if d.lines > 0 {
		fmt.Fprintf(d.out, "\x1b[%dA\x1b[J", d.lines)
		d.lines = 0
	}
}

func (d *display) draw() {
	if d.dev != nil {
		d.lines = printTable(d.out, []datapath.Status{d.dev.Status()})
	}
}

func sizeText(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	v, u := float64(n), 0
	for v >= 1024 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	if v == float64(uint64(v)) {
		return fmt.Sprintf("%d %s", uint64(v), units[u])
	}
	return fmt.Sprintf("%.1f %s", v, units[u])
}

// printStats writes one JSON object of counters: what a user would attach to a
// report, and what the benchmarks read.
func printStats(out io.Writer, srv nbd.Stats, st datapath.Status) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	_ = json.NewEncoder(out).Encode(map[string]any{
		"nbd": srv, "volume": st, "mallocs": m.Mallocs, "numGC": m.NumGC,
	})
}
