package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
)

// Report is how a run went.
type Report struct {
	Broken  []string // violations; none is good
	Stats   Stats
	Virtual time.Duration
}

// run is one script being played.
type run struct {
	*Script
	w       *world
	array   *array
	oracle  *oracle
	clients []*client
	dir     string
	jobs    sync.WaitGroup // restarts, and the ends of dead processes
	gen     int
	over    chan struct{} // closed when the clients have their answers

	proc  *process // under oracle.mu; nil while there is none
	dying bool     // under world.mu: between a kill and the next process
}

// process is one life of the product.
type process struct {
	gen  int
	dir  string
	dev  *device.Device
	dead bool // under oracle.mu
}

// Play plays a script in a bubble of its own. dir is for state directories;
// trace, if not nil, is told what happens.
func Play(t *testing.T, s *Script, dir string, trace func(line string)) (rep Report) {
	synctest.Test(t, func(*testing.T) {
		begin := time.Now()
		r := newRun(s, dir)
		if trace != nil {
			r.array.disk.say = r.oracle.tell
			r.oracle.trace = func(format string, args ...any) {
				trace(fmt.Sprintf("%v ", time.Since(begin)) + fmt.Sprintf(format, args...))
			}
		}
		go r.w.loop()
		r.play()
		r.w.end()
		rep = Report{Broken: r.oracle.broken, Stats: r.oracle.stats, Virtual: time.Since(begin)}
	})
	return rep
}

func newRun(s *Script, dir string) *run {
	set := &s.Setup
	w := newWorld(set.Seed)
	w.yields, w.haste = set.Yields, set.Haste
	blocks := 2 * set.Blocks // room to grow
	d := newDisk(blocks, set.BlockSize, rand.New(rand.NewPCG(set.Seed, 0xd15c)))
	r := &run{Script: s, w: w, dir: dir, over: make(chan struct{})}
	r.oracle = &oracle{bs: set.BlockSize, size: uint64(set.Blocks * set.BlockSize), rng: rand.New(rand.NewPCG(set.Seed, 0x0)),
		noPath: set.NoPath, silent: !transports[set.Transport].tellsPower, slack: set.Fence + 2*set.PathTimeout + set.CmdTimeout + patience, lastFault: time.Now()}
	r.oracle.h.blocks = make([][]*rec, blocks)
	r.array = &array{w: w, disk: d, size: r.oracle.size, powered: map[int]bool{}, broken: r.oracle.report, tell: r.oracle.tell}
	r.oracle.told = func() int { return int(r.array.told.Load()) }
	r.array.power = func(size uint64) (front, error) { return transports[set.Transport].power(set, d, size) }
	for i, p := range set.Paths {
		r.array.paths = append(r.array.paths, &path{index: i + 1, address: fmt.Sprintf("10.0.0.%d:%s", i+1, transports[set.Transport].port),
			tpgt: p[0], group: p[1], delay: set.Delay, jitter: set.Jitter, healed: make(chan struct{})})
	}
	for i := range set.Clients {
		r.clients = append(r.clients, newClient(r.oracle, i, set))
	}
	return r
}

func (r *run) path(n int) *path { return r.array.paths[n-1] }

// play is the life of a run.
func (r *run) play() {
	var err error
	r.w.under(func() { err = r.array.start(false) })
	if err == nil {
		err = r.first()
	}
	if err != nil {
		r.oracle.report("it does not begin: %v", err)
		return
	}
	for _, c := range r.clients {
		go c.run()
	}
	r.jobs.Go(r.look)
	r.hand(r.proc)
	r.w.under(r.plan)
	wait(r.length())
	r.finish()
}

// length is when the last step is over and the clients have had their time.
func (r *run) length() time.Duration {
	end := r.Setup.Run
	for _, st := range r.Steps {
		end = max(end, st.At+st.For+time.Millisecond)
	}
	return end
}

// plan makes events of the steps. Under world.mu.
func (r *run) plan() {
	for i := range r.Steps {
		st := &r.Steps[i]
		do, err := verbs[st.Verb].action(&r.Setup, st)
		if err != nil {
			r.oracle.report("%v", err)
			continue
		}
		r.w.after(st.At, func() {
			r.oracle.faultBegins()
			r.oracle.tell("step %v", st)
			end := do(r)
			r.w.after(st.For, func() {
				if end != nil {
					r.oracle.tell("end of step %v", st)
					end()
				}
				r.oracle.faultEnds()
			})
		})
	}
	r.w.after(watchEvery, r.watch)
}

// watchEvery is how often requests are looked at that take long.
const watchEvery = 500 * time.Millisecond

// wait lets virtual time pass.
func wait(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
}

func (r *run) config(p *process) device.Config {
	set := &r.Setup
	protocol, err := transports[set.Transport].protocol(set)
	if err != nil {
		r.oracle.report("%v", err)
	}
	c := device.Config{Name: "vol", PathSelector: set.Selector, Protocol: protocol,
		QueueDepth: set.Depth, PathTimeout: set.PathTimeout, CommandTimeout: set.CmdTimeout,
		NoPathTimeout: set.NoPath, Replays: set.Replays, Patient: true, NoControl: true, StateDir: p.dir,
		Dial: r.array.dial(p.gen), Jitter: r.jitter(p.gen), Events: r.event}
	if err := set.tunables(&c); err != nil {
		r.oracle.report("%v", err)
	}
	for _, a := range r.array.paths {
		c.Portals = append(c.Portals, a.address)
	}
	return c
}

// jitter draws the pauses of process gen, for each path from its own dice.
func (r *run) jitter(gen int) func(path string, below time.Duration) time.Duration {
	all := map[string]dice{}
	for _, p := range r.array.paths {
		all[p.address] = newDice(r.Setup.Seed, 0x9a<<32|uint64(gen)<<8|uint64(p.index))
	}
	var mu sync.Mutex
	return func(path string, below time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return all[path].upTo(below)
	}
}

func (r *run) event(e datapath.Event) {
	r.oracle.mu.Lock()
	defer r.oracle.mu.Unlock()
	r.oracle.note("event %s %s: %s", e.Kind, e.Path, e.Detail)
	switch e.Kind {
	case datapath.PathDown:
		r.oracle.stats.Losses++
	case datapath.Fenced:
		r.oracle.stats.Fences++
	case datapath.PathIdentityMismatch:
		r.oracle.stats.Mismatches++
	case datapath.PathMarginal:
		r.oracle.stats.Marginal++
	case datapath.Failback:
		r.oracle.stats.Failbacks++
	case datapath.PathOrder:
		r.oracle.stats.Orders++
	}
}

// first starts the first process.
func (r *run) first() error {
	p := &process{gen: 1, dir: filepath.Join(r.dir, "1")}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	dev, err := device.Open(ctx, r.config(p))
	if err != nil {
		return err
	}
	p.dev = dev
	r.gen = 1
	r.hand(p)
	return nil
}

// hand gives the clients a process to connect to.
func (r *run) hand(p *process) {
	r.oracle.mu.Lock()
	defer r.oracle.mu.Unlock()
	r.proc = p
	for _, c := range r.clients {
		c.next = p
		c.cond.Broadcast()
	}
}

// killNow is the death of the process: not one byte more goes out, its clients
// hear nothing more, and its state is what lies in its files. Under world.mu.
func (r *run) killNow() {
	r.array.kill(r.gen)
	r.oracle.mu.Lock()
	defer r.oracle.mu.Unlock()
	r.oracle.stats.Kills++
	r.proc.dead = true
	for _, c := range r.clients {
		c.processDies()
	}
}

// restart clears up after the dead process and starts the next, over a copy of
// its files: what the old goroutines still do to theirs must not count.
func (r *run) restart(pause time.Duration) {
	old := r.proc
	r.gen++
	p := &process{gen: r.gen, dir: filepath.Join(r.dir, fmt.Sprint(r.gen))}
	if err := copyState(old.dir, p.dir); err != nil {
		r.oracle.report("%v", err)
		return
	}
	r.jobs.Go(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = old.dev.Close(ended)
	})
	wait(pause)
	var err error
	if p.dev, err = device.Open(context.Background(), r.config(p)); err != nil {
		r.oracle.report("after a restart the device does not open: %v", err)
		return
	}
	r.w.under(func() { r.dying = false })
	r.hand(p)
	r.oracle.faultEnds()
}

// copyState copies what outlives a process, but not its locks.
func copyState(from, to string) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	files, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".lock") || strings.HasPrefix(f.Name(), ".tmp") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(from, f.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, f.Name()), b, 0o600)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
