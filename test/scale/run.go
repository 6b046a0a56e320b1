package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/csi-mpath/csi-mpath/test/probe"
)

// The verifying load: loadBlocks blocks of a volume, each written at most once
// per loadReuse: seldom enough that no write waits for the fence of the one
// before (I3), and that the processor is left to what is measured.
const (
	loadBlocks = 1024
	loadReuse  = 20 * time.Second
)

// inMemory is where state files belong, as in /run; a disk will do.
const inMemory = "/dev/shm"

// run is one run's processes and connections.
type run struct {
	*config
	rep     *report
	dir     string
	storage Storage
	target  *role
	product *role
	clients []*probe.Conn
	probes  []*probe.Probe
	base    memory // the product before the first volume
}

// memory is the product's at one moment, bytes.
type memory struct {
	rss, files uint64
	in         Inside
}

func (c *config) run(ctx context.Context, rep *report) (err error) {
	parent := inMemory
	if st, err := os.Stat(parent); err != nil || !st.IsDir() {
		parent = ""
	}
	dir, err := os.MkdirTemp(parent, "scale")
	if err != nil {
		return err
	}
	r := &run{config: c, rep: rep, dir: dir}
	defer func() {
		for _, k := range r.clients {
			_ = k.Close()
		}
		r.product.stop()
		r.target.stop()
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	for _, step := range []func(context.Context) error{r.open, r.attach, r.touch, r.beIdle, r.outages} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// open starts the processes and opens the volumes.
func (r *run) open(ctx context.Context) (err error) {
	if r.target, err = startRole(ctx, "target", r.dir); err != nil {
		return err
	}
	if err = r.target.call("Start", r.volumes, &r.storage); err != nil {
		return err
	}
	if r.product, err = startRole(ctx, "product", r.dir); err != nil {
		return err
	}
	if r.base, err = r.look(); err != nil {
		return err
	}
	var mark int
	if err = r.target.call("Mark", struct{}{}, &mark); err != nil {
		return err
	}
	before, err := cpu(r.product.proc.PID())
	if err != nil {
		return err
	}
	start := time.Now()
	if err = r.product.call("Open", Wanted{Storage: r.storage, Dir: r.dir}, &r.rep.Opened); err != nil {
		return err
	}
	if err = r.allBack(ctx); err != nil {
		return err
	}
	r.rep.AllUp = time.Since(start)
	after, err := cpu(r.product.proc.PID())
	r.rep.OpenCPU = after - before
	return errors.Join(err, r.target.call("Rate", mark, &r.rep.OpenRate), r.note(ctx, "open, no client"))
}

// allBack waits for every path.
func (r *run) allBack(ctx context.Context) error {
	var n int
	var cerr error
	err := until(ctx, r.back, "all paths", func() bool {
		cerr = r.product.call("Live", struct{}{}, &n)
		return cerr != nil || n == portals*r.volumes
	})
	if err != nil {
		err = fmt.Errorf("%d of %d paths are live: %w", n, portals*r.volumes, err)
	}
	return errors.Join(err, cerr)
}

// attach connects an idle client to each volume.
func (r *run) attach(ctx context.Context) error {
	for i := range r.volumes {
		c, err := probe.Dial(ctx, socketOf(r.dir, i))
		if err != nil {
			return err
		}
		r.clients = append(r.clients, c)
	}
	return r.note(ctx, "with an idle client")
}

// touch sends a write and a read through each client, so that nothing is as
// new any more.
func (r *run) touch(ctx context.Context) error {
	buf := make([]byte, probe.Block)
	for _, c := range r.clients {
		if err := errors.Join(c.Write(volumeSize-probe.Block, buf), c.Read(volumeSize-probe.Block, buf)); err != nil {
			return err
		}
	}
	if err := r.note(ctx, "used a little, idle again"); err != nil || r.profile == "" {
		return err
	}
	return r.product.call("Profile", r.profile, &struct{}{})
}

// note waits a little and adds a row about memory.
func (r *run) note(ctx context.Context, when string) error {
	if err := pause(ctx, r.settle); err != nil {
		return err
	}
	m, err := r.look()
	if err != nil {
		return err
	}
	n := uint64(r.volumes)
	per := func(a, b uint64) float64 { return float64(int64(a-b)) / float64(n) / 1024 }
	r.rep.Memory = append(r.rep.Memory, memoryRow{When: when, RSS: per(m.rss, r.base.rss), Files: per(m.files, r.base.files),
		Heap: per(m.in.HeapAlloc, r.base.in.HeapAlloc), Stack: per(m.in.StackInuse, r.base.in.StackInuse),
		Goroutines: float64(m.in.Goroutines-r.base.in.Goroutines) / float64(n)})
	return nil
}

func (r *run) look() (m memory, err error) {
	if m.rss, m.files, err = resident(r.product.proc.PID()); err == nil {
		err = r.product.call("Look", struct{}{}, &m.in)
	}
	return m, err
}

// beIdle measures processor time while nobody asks for anything.
func (r *run) beIdle(ctx context.Context) error {
	used, err := r.busy(func() error { return r.recorded(func() error { return pause(ctx, r.idle) }) })
	r.rep.IdleCPU, r.rep.IdleFor = used, r.idle
	return err
}

// recorded runs f, with a CPU profile if one is wanted.
func (r *run) recorded(f func() error) error {
	if r.config.cpu == "" {
		return f()
	}
	if err := r.product.call("Record", r.config.cpu, &struct{}{}); err != nil {
		return err
	}
	return errors.Join(f(), r.product.call("Record", "", &struct{}{}))
}

// busy is the share of one core the product used while f ran.
func (r *run) busy(f func() error) (share float64, err error) {
	start := time.Now()
	before, err := cpu(r.product.proc.PID())
	if err != nil {
		return 0, err
	}
	if err = f(); err != nil {
		return 0, err
	}
	after, err := cpu(r.product.proc.PID())
	return float64(after-before) / float64(time.Since(start)), err
}

// outages takes one portal away from all, then both, under a verifying load on
// a few volumes.
func (r *run) outages(ctx context.Context) error {
	for i := range min(r.loaded, r.volumes) {
		p, err := probe.Start(ctx, socketOf(r.dir, i), probe.Options{Size: loadBlocks * probe.Block, Workers: 2,
			Reuse: loadReuse, Seed: uint64(i)})
		if err != nil {
			return err
		}
		r.probes = append(r.probes, p)
	}
	err := r.outage(ctx, "one portal", []int{0})
	if err == nil {
		err = r.outage(ctx, "both portals", []int{0, 1})
	}
	for _, p := range r.probes {
		r.rep.Requests += p.Requests()
		err = errors.Join(err, p.Stop())
	}
	return errors.Join(err, r.note(ctx, "after the outages"), r.logins())
}

func (r *run) logins() error {
	m, err := r.look()
	r.rep.Logins = m.in.Logins
	return err
}

// outage measures one: the time until all paths are back counts from the
// moment the portals listen again.
func (r *run) outage(ctx context.Context, name string, doors []int) (err error) {
	row := outageRow{Name: name}
	if err = r.target.call("Kill", doors, &struct{}{}); err != nil {
		return err
	}
	if row.AwayCPU, err = r.busy(func() error { return pause(ctx, r.config.outage) }); err != nil {
		return err
	}
	var mark int
	if err = r.target.call("Mark", struct{}{}, &mark); err != nil {
		return err
	}
	start := time.Now()
	row.BackCPU, err = r.busy(func() error {
		return errors.Join(r.target.call("Return", doors, &struct{}{}), r.allBack(ctx))
	})
	row.Back = time.Since(start)
	err = errors.Join(err, pause(ctx, 2*sampleEvery), r.target.call("Rate", mark, &row.Rate))
	for _, p := range r.probes {
		err = errors.Join(err, p.Err())
		worst, _ := p.Worst(p.Now()-time.Since(start)-r.config.outage, p.Now())
		row.Stall = max(row.Stall, worst)
	}
	r.rep.Outages = append(r.rep.Outages, row)
	return err
}
