package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/poll"
)

// S5: polling, over loopback TCP to the embedded target with memory behind it,
// in a process of its own, so that the CPU counted is ours alone. One lane reads
// 4 KiB at random; the data is checked.

const (
	s5Size  = 16 << 20
	s5Fixed = poll.Polling(50 * time.Microsecond)
)

// readerClient reads blocks at random and checks their stamps.
func readerClient(depth int, size uint64) *client {
	c := newClient(0, depth, false, nil)
	rng := rand.New(rand.NewPCG(5, uint64(depth)))
	out := make([]bool, depth)
	for i := range c.reqs {
		c.reqs[i].Op, c.reqs[i].Buf = blk.Read, make([]byte, requestSize)
	}
	c.prepare = func(r *blk.Request) {
		r.Off = rng.Uint64N(size/requestSize) * requestSize
		r.Cookie = ^r.Off
		out[r.Slot] = true
		stamp(r.Buf, ^r.Off)
	}
	c.answered = func(r *blk.Request) error {
		if out[r.Slot] && !stamped(r.Buf, r.Off) {
			return checkf("the block at %d is another one", r.Off)
		}
		out[r.Slot] = false
		return nil
	}
	return c
}

// s5Target is its name.
const s5Target = "iqn.2026-01.io.csi-mpath:bench-memory"

func pollingSide(name string, p poll.Polling, depth int, portal *string) side {
	return side{name: name, run: func(ctx context.Context, d time.Duration) (sample, error) {
		dir, err := os.MkdirTemp("", "bench")
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		dev, err := device.Open(ctx, device.Config{Name: "bench", Portals: []string{*portal}, Protocol: device.ISCSI{Target: s5Target}, StateDir: dir,
			NoControl: true, NoPathTimeout: datapath.Never, Polling: p, ReadOnly: true, Logins: device.NewLogins()})
		if err != nil {
			return nil, err
		}
		s, err := readFrom(ctx, dev, d, depth)
		end, cancel := context.WithTimeout(context.Background(), settleTime)
		defer cancel()
		return s, errors.Join(err, dev.Close(end))
	}}
}

func readFrom(ctx context.Context, dev *device.Device, d time.Duration, depth int) (sample, error) {
	lane, err := dev.OpenLane(depth)
	if err != nil {
		return nil, err
	}
	defer lane.Close()
	c := readerClient(depth, s5Size)
	if _, _, err := drive(ctx, d/10, []worker{c.loop(lane)}); err != nil { // adaptive polling adapts
		return nil, err
	}
	_, s, err := drive(ctx, d, []worker{c.loop(lane)})
	return s, errors.Join(err, c.verify())
}

func s5Experiments() (out []experiment) {
	for depth := 1; depth <= 8; depth *= 2 {
		out = append(out, pollingGains(depth, false))
	}
	return append(out, pollingGains(1, true), pollingGains(8, true))
}

func pollingSides(depth int, portal *string) []side {
	return []side{pollingSide("off", 0, depth, portal), pollingSide("adaptive", poll.PollAdaptive, depth, portal),
		pollingSide("fixed 50µs", s5Fixed, depth, portal)}
}

func pollingGains(depth int, loaded bool) experiment {
	seed := "1.057, in a VM 1.15-1.30"
	var portal string
	e := experiment{name: fmt.Sprintf("4k reads over loopback TCP, depth %d", depth), sides: pollingSides(depth, &portal),
		around: func() (func(), error) { return childTarget(&portal) }}
	adaptive := claim{metric: opsPerSecond, ours: "adaptive", base: "off", seed: seed}
	if loaded {
		e.name += ", every CPU busy"
		e.length, e.turns = loadedSample, loadedTurns // a neighbour's time slice is some milliseconds
		e.around = func() (func(), error) { return busyMachine(&portal) }
		adaptive.goal, adaptive.seed = 0.95, ""
	}
	e.claims = []claim{adaptive, {metric: opsPerCPU, ours: "adaptive", base: "off"}}
	if loaded {
		e.sides = e.sides[:2]
		return e
	}
	e.claims = append(e.claims,
		claim{metric: opsPerSecond, ours: "fixed 50µs", base: "off", seed: seed},
		claim{metric: opsPerCPU, ours: "fixed 50µs", base: "off"})
	return e
}

func s5Plot(ctx context.Context, p *plotter) error {
	var portal string
	end, err := childTarget(&portal)
	if err != nil {
		return err
	}
	defer end()
	a := axes{file: "s5-polling.svg", title: "S5: 4 KiB reads over loopback TCP", x: "depth", y: "thousand per second",
		at: []int{1, 2, 4, 8}, metric: opsPerSecond, unit: 1e3}
	return p.over(ctx, a, func(depth int) []side { return pollingSides(depth, &portal) })
}
