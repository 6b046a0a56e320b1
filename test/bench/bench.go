package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Limits of a run.
const (
	// maxTries is how often a workload is measured while its control is void.
	maxTries = 3
	// controlSpan is how far the control's median may leave 1.
	controlSpan = 0.05
)

// bench is one run.
type bench struct {
	config
	ctx    context.Context
	dir    string // temporary files, in memory where there is /dev/shm
	procs  []*process
	claims []claim
	began  time.Time
}

// peer is one server under load. Several stand ready, one is driven at a time.
type peer struct {
	name string
	uri  string
	// load runs one job; nil is fio on uri. A job that is itself what is
	// compared reports its CPU time, and has no server.
	load func(b *bench, w workload, seconds float64) (result, error)
	// server's CPU time is what an I/O costs; behind is the rest of its path.
	server, behind *process
}

// workload is one fio job.
type workload struct {
	name      string
	rw, bs    string
	depth     int
	streams   int  // jobs at once, each with its part and its connection; 0 is one
	bandwidth bool // shown in MB/s
	// goals by name of the baseline: the ratio claimed.
	goals map[string]float64
	// cost is the goal for the CPU time per I/O of ours over the baselines', at
	// most; 0: none.
	cost float64
}

// suite brings up peers, ours first, and says what to run on them.
type suite struct {
	start     func(b *bench) ([]peer, error)
	workloads []workload
}

func newBench(ctx context.Context, c config) (*bench, error) {
	base := ""
	if i, err := os.Stat("/dev/shm"); err == nil && i.IsDir() {
		base = "/dev/shm" // a file on a disk would be measured with its disk
	}
	dir, err := os.MkdirTemp(base, "bench")
	if err != nil {
		return nil, err
	}
	return &bench{config: c, ctx: ctx, dir: dir, began: time.Now()}, nil
}

func (b *bench) close() error {
	b.stopAll()
	return os.RemoveAll(b.dir)
}

func (b *bench) stopAll() {
	for i := len(b.procs) - 1; i >= 0; i-- {
		b.procs[i].stop()
	}
	b.procs = nil
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

func (b *bench) progress(format string, a ...any) {
	fmt.Fprintf(os.Stderr, "%4.0fs  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, a...))
}

// need reports the programs that are missing.
func need(programs ...string) error {
	var missing []string
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			missing = append(missing, p)
		}
	}
	if missing != nil {
		return fmt.Errorf("%s not installed: run make setup", strings.Join(missing, ", "))
	}
	return nil
}

func (b *bench) suite(name string, s suite) error {
	b.progress("suite %s: starting the peers", name)
	defer b.stopAll()
	peers, err := s.start(b)
	if err != nil {
		return err
	}
	for _, p := range peers {
		if p.load != nil {
			continue
		}
		if _, err := b.fio(p, workload{rw: "write", bs: "1M", depth: 4}, fill); err != nil {
			return fmt.Errorf("fill %s: %w", p.name, err)
		}
	}
	for _, w := range s.workloads {
		if err := b.workload(name, peers, w); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return nil
}

// workload measures one workload on every peer until its controls hold.
func (b *bench) workload(suite string, peers []peer, w workload) error {
	for try := 1; ; try++ {
		samples, err := b.rounds(peers, w)
		if err != nil {
			return err
		}
		claims, void := judge(suite, peers, w, samples), false
		for i := range claims {
			b.progress("%s: %s", w.name, claims[i].line())
			void = void || claims[i].Void
		}
		if !void || try == maxTries {
			b.claims = append(b.claims, claims...)
			return nil
		}
		b.progress("%s: a control is outside 1.00 +-%.2f: measured again", w.name, controlSpan)
	}
}

// rounds measures each peer, and ours twice, once per round; the order rotates.
func (b *bench) rounds(peers []peer, w workload) ([][]sample, error) {
	again := append(append([]peer{}, peers...), peers[0])
	samples := make([][]sample, len(again))
	for _, p := range again {
		if _, err := b.load(p, w, warm); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	for round := range b.config.rounds {
		b.progress("%s: round %d of %d", w.name, round+1, b.config.rounds)
		for i := range again {
			k := (round + i) % len(again)
			s, err := b.measure(again[k], w)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", again[k].name, err)
			}
			samples[k] = append(samples[k], s)
		}
	}
	return samples, nil
}

// sample is one run of a workload on one peer.
type sample struct {
	iops, mbps float64
	cpu        float64 // microseconds of the server, or of the load that is compared, per I/O
	path       float64 // the same of client, server and target together
}

func (b *bench) measure(p peer, w workload) (sample, error) {
	server, behind, err := p.cpuTimes()
	if err != nil {
		return sample{}, err
	}
	r, err := b.load(p, w, b.seconds)
	if err != nil {
		return sample{}, errors.Join(err, p.health())
	}
	server2, behind2, err := p.cpuTimes()
	own := float64((server2 - server).Microseconds()) / r.ios
	r.cpu += own
	r.path += own + float64((behind2-behind).Microseconds())/r.ios
	return r.sample, err
}

// result is a sample and the number of I/Os behind it.
type result struct {
	sample
	ios float64
}

func (b *bench) load(p peer, w workload, seconds float64) (result, error) {
	if p.load != nil {
		return p.load(b, w, seconds)
	}
	return b.fio(p, w, seconds)
}

// health says what became of the server after a failed job.
func (p *peer) health() error {
	if p.server == nil {
		return nil
	}
	state := "still runs"
	select {
	case <-p.server.done:
		state = "has ended: " + p.server.cmd.ProcessState.String()
	default:
	}
	return fmt.Errorf("server %s %s; its last words: %s", p.name, state, p.server.out.String())
}

func (p *peer) cpuTimes() (server, behind time.Duration, err error) {
	if p.server != nil {
		server, err = p.server.cpuTime()
	}
	if err == nil && p.behind != nil {
		behind, err = p.behind.cpuTime()
	}
	return server, behind, err
}

// verdict is an error when a claim failed or is void.
func (b *bench) verdict() error {
	var errs []error
	for _, c := range b.claims {
		switch {
		case c.Void:
			errs = append(errs, fmt.Errorf("void, the control left 1.00 +-%.2f: %s %s, %s against %s", controlSpan, c.Suite, c.Claim, c.Metric, c.Baseline))
		case !c.Met:
			errs = append(errs, fmt.Errorf("not met: %s %s, %s against %s: %.2f, goal %.2f", c.Suite, c.Claim, c.Metric, c.Baseline, c.Ratio, c.Goal))
		}
	}
	if b.json != "" {
		errs = append(errs, b.writeJSON())
	}
	return errors.Join(errs...)
}
