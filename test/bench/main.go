// Command bench measures this project against the programs people use today:
// interleaved rounds in rotated order, everything pinned to one CPU, medians of
// paired ratios, and a control that measures the same server against itself.
//
// A pinned run measures the length of the whole path, client, server and
// target, and not where the scheduler put them. A claim is void when its
// control leaves 1.00 +-5%: it is then measured again, a bounded number of
// times.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// config is what the command line says.
type config struct {
	suites  string
	rounds  int
	seconds float64
	cpu     string
	json    string
	bin     string
	budget  time.Duration
	verbose bool
	nice    int
	// batch makes all that is measured SCHED_BATCH: no wake-up preempts, each runs
	// until it waits, so a sample does not depend on which request the client
	// was interrupted at. It helps whoever does not batch by itself more.
	batch bool
	// congestion is TCP's control, in a network namespace of our own; empty: the
	// machine's network as it is.
	congestion string
}

func main() {
	var c config
	flag.StringVar(&c.suites, "suites", "nbd,iscsi,target,initiator", "what to measure: "+strings.Join(suiteNames(), ", "))
	flag.IntVar(&c.rounds, "rounds", 7, "rounds of each workload, at least 7 for a figure to be published")
	flag.Float64Var(&c.seconds, "seconds", 1, "length of one sample, seconds")
	flag.StringVar(&c.cpu, "cpu", "0", "CPU that everything is pinned to; empty: not pinned, too noisy for claims")
	flag.StringVar(&c.json, "json", os.Getenv("JSON"), "file for one JSON object per claim (also $JSON)")
	flag.StringVar(&c.bin, "bin", "bin/csi-mpath", "the csi-mpath binary, for the suites that attach")
	flag.DurationVar(&c.budget, "budget", 60*time.Minute, "longest time for everything")
	flag.IntVar(&c.nice, "nice", 0, "autogroup nice value of everything measured, -20..19")
	flag.BoolVar(&c.batch, "batch", false, "SCHED_BATCH for all: no preemption at wake-ups, less noise, another question")
	flag.StringVar(&c.congestion, "congestion", "cubic", "TCP congestion control, in a network namespace of its own (root); empty: the machine's network as it is")
	flag.BoolVar(&c.verbose, "v", false, "show what the servers print")
	flag.Parse()
	if os.Getenv(innerMark) == "" {
		os.Exit(supervise(c))
	}
	if err := run(c); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(c config) (err error) {
	if c.nice != 0 {
		if err := setNice(c.nice); err != nil {
			return err
		}
	}
	if os.Getenv(innerMark) == ownNetwork {
		if err := loopback(c.congestion); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, c.budget)
	defer cancel()
	b, err := newBench(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	for _, name := range strings.Split(c.suites, ",") {
		s, ok := suites[name]
		if !ok {
			return fmt.Errorf("no suite %q; there are %s", name, strings.Join(suiteNames(), ", "))
		}
		if err := b.suite(name, s); err != nil {
			return fmt.Errorf("suite %s: %w", name, err)
		}
	}
	b.table(os.Stdout)
	return b.verdict()
}
