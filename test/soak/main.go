// Command soak holds a verifying load on a two-path volume while a seeded
// script breaks and heals its paths, and reports the stall each kind of fault
// caused, beside fault-free moments of the same run.
//
// Exit code 1: an I/O error, a byte that differs, or a path that did not come
// back. Times are reported against their goals but do not decide the exit code,
// unless --strict is given.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/csi-mpath/csi-mpath/test/interop/rig"
	"github.com/csi-mpath/csi-mpath/test/probe"
)

// The volume: fio's part, then the probes' own parts.
const (
	mib       = 1 << 20
	fioJobs   = 4
	fioSize   = 64 * mib // each job
	probeOff  = 512 * mib
	probeSize = 1024 * mib
	hotOff    = probeOff + probeSize
	hotSize   = mib
	volume    = 2048 * mib
)

// fenceWithin bounds the wait for the writes that overlap: the next event comes
// then anyway, and the report shows how long they had waited.
const fenceWithin = 25 * time.Second

// oneWay is the latency of the paths, each direction.
const oneWay = 500 * time.Microsecond

// calm is the pause between events; a control event looks at as long a time.
const calm = time.Second

// The transports of a volume.
const (
	overISCSI = "iscsi"
	overNVMe  = "nvme-tcp"
)

type config struct {
	bin      string
	duration time.Duration
	control  time.Duration
	seed     uint64
	over     string
	json     string
	strict   bool
	goals    goals
}

func main() {
	var c config
	flag.StringVar(&c.bin, "bin", "bin/csi-mpath", "csi-mpath binary")
	flag.DurationVar(&c.duration, "duration", 5*time.Minute, "how long paths are broken")
	flag.DurationVar(&c.control, "control", 30*time.Second, "how long they are left alone before")
	flag.Uint64Var(&c.seed, "seed", 1, "of the fault script and the probes")
	flag.StringVar(&c.over, "transport", overISCSI, "iscsi, with Debian's tgt for the target, or nvme-tcp, with our own")
	flag.StringVar(&c.json, "json", "", "file for the report as JSON")
	flag.BoolVar(&c.strict, "strict", false, "exit with 2 when a time goal was missed")
	flag.Float64Var(&c.goals.lost, "goal-lost", 50, "median stall after a reset or kill, ms")
	flag.Float64Var(&c.goals.blackHole, "goal-black-hole", 5200, "stall after a black hole, ms: pathTimeout + 200")
	flag.Float64Var(&c.goals.overlap, "goal-overlap", 16000, "stall of overlapping writes, ms: fence bound + 1 s")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(c.main(ctx))
}

func (c *config) main(ctx context.Context) int {
	rep := &report{Suite: "soak", Transport: c.over, Seed: c.seed, Duration: c.duration, Load: map[string]any{}}
	err := c.run(ctx, rep)
	if err != nil {
		rep.Failure = err.Error()
	}
	rep.Rows = rows(rep.Events, c.goals)
	rep.print(os.Stdout)
	if c.json != "" {
		err = errors.Join(err, rep.save(c.json))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "soak: FAILED: %v\n", err)
		return 1
	}
	fmt.Println("soak: no I/O error, no mismatch")
	for _, r := range rep.Rows {
		if c.strict && r.Met != nil && !*r.Met {
			return 2
		}
	}
	return 0
}

// load is everything that runs against the volume.
type load struct {
	rig   *rig.Rig
	fio   *rig.Fio
	probe *probe.Probe // never overlaps what is in doubt
	hot   *probe.Probe // always does
	meter *rig.Meter
}

func (c *config) run(ctx context.Context, rep *report) (err error) {
	if c.over != overISCSI && c.over != overNVMe {
		return fmt.Errorf("--transport %q is neither %s nor %s", c.over, overISCSI, overNVMe)
	}
	nvme := c.over == overNVMe
	r, err := rig.Start(ctx, rig.Options{Bin: c.bin, Size: volume, OneWay: oneWay, Own: nvme, NVMe: nvme})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Stop()) }()
	l, err := c.begin(ctx, r)
	if err != nil {
		return err
	}
	if err = c.faults(ctx, l, rep); err != nil {
		l.fio.Kill()
		return errors.Join(err, l.probe.Err(), l.hot.Err())
	}
	return l.finish(rep)
}

func (c *config) begin(ctx context.Context, r *rig.Rig) (*load, error) {
	l := &load{rig: r, meter: r.StartMeter(ctx)}
	var err error
	l.fio, err = rig.StartFio(rig.Load{Socket: r.Socket, Dir: r.Dir, Size: fioSize, Jobs: fioJobs, Depth: 8,
		Block: "4k", Runtime: c.control + c.duration})
	if err != nil {
		return nil, err
	}
	l.probe, err = probe.Start(ctx, r.Socket, probe.Options{Off: probeOff, Size: probeSize, Workers: 8,
		Reuse: 20 * time.Second, Seed: c.seed})
	if err == nil {
		l.hot, err = probe.Start(ctx, r.Socket, probe.Options{Off: hotOff, Size: hotSize, Workers: 2, Hot: true})
	}
	if err != nil {
		l.fio.Kill()
	}
	return l, err
}

// faults runs the control events and then the script, until the time is over.
func (c *config) faults(ctx context.Context, l *load, rep *report) error {
	begin := time.Now()
	rng := rand.New(rand.NewPCG(c.seed, 0))
	rig.Pause(ctx, 2*calm) // the load starts
	for time.Since(begin) < c.control+c.duration-calm {
		s := step{kind: control}
		if time.Since(begin) >= c.control {
			s = plan(rng)
		}
		e, err := l.event(ctx, s)
		if err != nil {
			return err
		}
		e.At = time.Since(begin)
		rep.Events = append(rep.Events, e)
		if s.kind != control {
			fmt.Printf("%6.1fs  %-10s  path %s  stall %8.1f ms  overlapping %8.1f ms\n", e.At.Seconds(), e.Kind,
				e.Path, ms(e.Stall), ms(e.Overlap))
		}
	}
	return ctx.Err()
}

// event runs one step and measures around it.
func (l *load) event(ctx context.Context, s step) (event, error) {
	rig.Pause(ctx, calm)
	e := event{Kind: s.kind, Path: l.rig.Paths[s.path].Name}
	if s.kind == both {
		e.Path = "*"
	}
	from := l.probe.Now()
	hotFrom := l.hot.Now()
	at := time.Now()
	var hit time.Duration
	if err := s.run(ctx, l.rig, func() { hit = l.probe.Now() }); err != nil {
		return e, errors.Join(err, l.probe.Err(), l.hot.Err(), l.fio.Err())
	}
	// The writes that overlap wait for a fence, which may come later than the path.
	_ = rig.Until(ctx, fenceWithin, "the overlapping writes", func() bool { return l.hot.Oldest() < calm/4 })
	e.Stall, e.Inflight = l.probe.Worst(from, hit)
	e.After, _ = l.probe.Worst(from, l.probe.Now())
	e.Overlap, _ = l.hot.Worst(hotFrom, l.hot.Now())
	if s.kind != both && s.kind != delay {
		e.Sibling = l.meter.Ratio(1-s.path, at, calm)
	}
	return e, errors.Join(ctx.Err(), l.probe.Err(), l.hot.Err(), l.fio.Err())
}

func (l *load) finish(rep *report) error {
	res, err := l.fio.Wait(60 * time.Second)
	err = errors.Join(err, l.probe.Stop(), l.hot.Stop())
	if err != nil {
		return err
	}
	rep.Load["fio_reads"], rep.Load["fio_writes"] = res.Reads, res.Writes
	rep.Load["fio_read_iops"], rep.Load["fio_write_iops"] = res.ReadIOPS, res.WriteIOPS
	rep.Load["fio_longest_read_ms"], rep.Load["fio_longest_write_ms"] = ms(res.LongestRead), ms(res.LongestW)
	rep.Load["probe_requests"] = l.probe.Requests() + l.hot.Requests()
	fmt.Printf("\nfio: %d reads, %d writes, %.0f IOPS; probes: %d requests; every block read back once more\n",
		res.Reads, res.Writes, res.ReadIOPS+res.WriteIOPS, rep.Load["probe_requests"])
	return nil
}
