package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/pathsel"
)

// S1: the map step. Several submitters pick paths and count their commands in
// and out, each with a few in flight. One operation is one pick and one answer.

const (
	s1Paths    = 4
	s1InFlight = 4 // of each submitter
	// s1Block is how many operations are timed together, and go by between two
	// looks at the stop flag.
	s1Block  = 32
	flipTime = 10 * time.Millisecond
)

const (
	tailLatency    metric = "p99.9 ns/op"
	contendedLocks metric = "contended locks in the mutex profile"
	shareError     metric = "largest deviation from an equal share"
)

// chooser is one submitter's map step. T remembers a choice.
type chooser[T any] interface {
	Map(n uint32) (T, bool)
	Done(c T, n uint32)
}

// mapLoop is the submitter: the same for all sides.
func mapLoop[T any](m chooser[T], path func(T) int, shares *[s1Paths]int64, times *histogram) worker {
	return func(stop *atomic.Bool) (ops int64, err error) {
		var ring [s1InFlight]T
		var used [s1InFlight]bool
		for at := 0; !stop.Load(); {
			began := time.Now()
			for range s1Block {
				if used[at] {
					m.Done(ring[at], requestSize)
				}
				c, ok := m.Map(requestSize)
				if !ok {
					return ops, checkf("no path although all are usable")
				}
				ring[at], used[at] = c, true
				shares[path(c)]++
				at = (at + 1) % s1InFlight
			}
			ops += s1Block
			times.add(int64(time.Since(began)) / s1Block)
		}
		for i, c := range ring {
			if used[i] {
				m.Done(c, requestSize)
			}
		}
		return ops, nil
	}
}

// mapRun runs n submitters and makes the sample. inflight is checked to be zero
// at the end: every pick was counted out.
func mapRun[T any](ctx context.Context, d time.Duration, n int, each func(i int) chooser[T], path func(T) int, inflight func() uint64) (sample, error) {
	shares := make([]struct {
		n [s1Paths]int64
		_ [64]byte
	}, n)
	times := make([]histogram, n)
	workers := make([]worker, n)
	for i := range n {
		workers[i] = mapLoop(each(i), path, &shares[i].n, &times[i])
	}
	ops, s, err := drive(ctx, d, workers)
	if err != nil {
		return nil, err
	}
	var sum [s1Paths]int64
	var total int64
	for i := range n {
		for p, k := range shares[i].n {
			sum[p], total = sum[p]+k, total+k
		}
		if i > 0 {
			times[0].merge(&times[i])
		}
	}
	if left := inflight(); left != 0 || total != ops {
		return nil, checkf("%d commands in flight at the end, %d of %d counted", left, total, ops)
	}
	s[tailLatency], s[shareError] = times[0].quantile(0.999), deviation(sum[:])
	return s, nil
}

// deviation is how far the largest or smallest share is from an equal one, 0..1.
func deviation(counts []int64) float64 {
	var total int64
	for _, n := range counts {
		total += n
	}
	worst := 0.0
	for _, n := range counts {
		d := float64(n)*float64(len(counts))/float64(max(total, 1)) - 1
		worst = max(worst, d, -d)
	}
	return worst
}

// snapshotSide is the datapath's own map step.
func snapshotSide(name string, sel pathsel.Selector, workers int, flip bool) side {
	return side{name: name, run: func(ctx context.Context, d time.Duration) (s sample, err error) {
		paths := make([]*nullPath, s1Paths)
		for i := range paths {
			paths[i] = newNullPath(i, 1, 1)
		}
		dev, err := openDevice(ctx, sel, paths)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, closeDevice(dev, paths)) }()
		maps := make([]*datapath.Mapper, workers)
		for i := range maps {
			if maps[i], err = dev.OpenMapper(); err != nil {
				return nil, err
			}
			defer maps[i].Close()
		}
		if flip {
			defer flipper(dev, paths[s1Paths-1].name)()
		}
		before := contended()
		s, err = mapRun(ctx, d, workers, func(i int) chooser[datapath.Chosen] { return maps[i] }, datapath.Chosen.Path,
			func() (n uint64) {
				for _, p := range dev.Status().Paths {
					n += p.Commands
				}
				return n
			})
		if s != nil {
			s[contendedLocks] = float64(contended() - before)
		}
		return s, err
	}}
}

// flipper takes a path out and puts it back, every flipTime, until the function
// it returns is called.
func flipper(dev *datapath.Device, path string) (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(flipTime)
		defer t.Stop()
		for out := true; ; out = !out {
			select {
			case <-stop:
				_ = dev.Enable(path)
				return
			case <-t.C:
			}
			if out {
				_ = dev.Drain(path)
			} else {
				_ = dev.Enable(path)
			}
		}
	}()
	return func() { close(stop); <-done }
}

// contended counts the mutex profile's entries that mapping is in; what changes
// the table has a lock.
func contended() (n int64) {
	records := make([]runtime.BlockProfileRecord, 1000)
	k, ok := runtime.MutexProfile(records)
	if !ok {
		return -1
	}
	for _, r := range records[:k] {
		frames := runtime.CallersFrames(r.Stack())
		for more := true; more; {
			var f runtime.Frame
			if f, more = frames.Next(); strings.Contains(f.Function, "datapath.(*Mapper)") || strings.Contains(f.Function, "/pkg/pathsel") {
				n += r.Count
				break
			}
		}
	}
	return n
}

// profiled records every contended lock while a side runs.
func profiled(s side) side {
	return side{name: s.name, run: func(ctx context.Context, d time.Duration) (sample, error) {
		old := runtime.SetMutexProfileFraction(1)
		defer runtime.SetMutexProfileFraction(old)
		return s.run(ctx, d)
	}}
}

const s1Submitters = 8

func s1Experiments() []experiment {
	var out []experiment
	for _, c := range []struct {
		sel  pathsel.Selector
		goal float64
	}{{pathsel.RoundRobin{}, 5}, {pathsel.QueueLength{}, 1.5}, {pathsel.ServiceTime{}, 1.5}} {
		out = append(out, experiment{
			name:  fmt.Sprintf("map, %d submitters, %s", s1Submitters, c.sel.Name()),
			turns: manyTurns,
			sides: []side{
				snapshotSide("snapshot", c.sel, s1Submitters, false),
				lockedSide("RWMutex", rwLocked, c.sel, s1Submitters),
				lockedSide("Mutex", mutexLocked, c.sel, s1Submitters),
				lockedSide("textbook RWMutex", rwTextbook, c.sel, s1Submitters),
				lockedSide("textbook Mutex", mutexTextbook, c.sel, s1Submitters),
			},
			claims: []claim{
				{metric: opsPerSecond, base: "RWMutex", goal: c.goal, seed: "1.04..1.08"},
				{metric: opsPerCPU, base: "RWMutex"},
				{metric: opsPerSecond, base: "Mutex"},
				{name: "the baseline is no straw man", metric: opsPerSecond, ours: "RWMutex", base: "textbook RWMutex", goal: 0.95},
				{name: "the baseline is no straw man", metric: opsPerSecond, ours: "Mutex", base: "textbook Mutex", goal: 0.95},
			},
		})
	}
	still := snapshotSide("still", pathsel.ServiceTime{}, s1Submitters, false)
	return append(out, experiment{
		name:   "a path flips every 10 ms",
		sides:  []side{still, profiled(snapshotSide("flips", pathsel.ServiceTime{}, s1Submitters, true))},
		length: longSample,
		turns:  2,
		claims: []claim{
			{metric: tailLatency, ours: "flips", base: "still", goal: 1.10, atMost: true},
			{metric: opsPerSecond, ours: "flips", base: "still"},
			{metric: contendedLocks, ours: "flips", goal: 0, atMost: true},
		},
	})
}

func s1Plot(ctx context.Context, p *plotter) error {
	sel := pathsel.ServiceTime{}
	return p.overWorkers(ctx, "s1-path-map.svg", "S1: picks and answers, service-time, 4 paths", func(n int) []side {
		return []side{
			snapshotSide("snapshot", sel, n, false),
			lockedSide("RWMutex", rwLocked, sel, n),
			lockedSide("Mutex", mutexLocked, sel, n),
		}
	})
}
