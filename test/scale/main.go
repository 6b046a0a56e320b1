// Command scale opens a thousand volumes with two paths each in one process,
// and reports what they cost while nobody uses them, and how long it takes until
// all paths are back after a portal that all of them share.
//
// Three processes: the target (a target of its own for each volume, behind two
// shared portals), the product (devices and their NBD servers, as attach makes
// them), and this one, which holds an idle NBD client per volume and a verifying
// load on a few. What is measured is the product alone.
//
// Exit code 1: an I/O error, a byte that differs, a path that did not come back.
// Figures are compared with their goals, but decide the exit code only with
// --strict.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// config is one run.
type config struct {
	volumes int
	loaded  int           // volumes that carry the verifying load
	idle    time.Duration // how long idle CPU is looked at
	settle  time.Duration // pause before each look at memory
	outage  time.Duration
	back    time.Duration // bound of the wait for all paths
	json    string
	profile string
	cpu     string
	strict  bool
}

func main() {
	if runRole(os.Args[1:]) {
		return
	}
	c := config{}
	flag.IntVar(&c.volumes, "volumes", 1000, "volumes, each with two paths")
	flag.IntVar(&c.loaded, "loaded", 4, "volumes with a verifying load during the outages")
	flag.DurationVar(&c.idle, "idle", 60*time.Second, "how long idle CPU is looked at")
	flag.DurationVar(&c.settle, "settle", 15*time.Second, "pause before each look at memory")
	flag.DurationVar(&c.outage, "outage", 20*time.Second, "how long a portal is away")
	flag.DurationVar(&c.back, "back", 2*time.Minute, "how long to wait for all paths")
	flag.StringVar(&c.json, "json", "", "file for the report as JSON")
	flag.StringVar(&c.profile, "profile", "", "file for the product's heap profile while it is idle")
	flag.StringVar(&c.cpu, "cpuprofile", "", "file for the product's CPU profile while it is idle")
	flag.BoolVar(&c.strict, "strict", false, "exit with 2 when a goal was missed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(c.main(ctx))
}

func (c *config) main(ctx context.Context) int {
	rep := &report{Suite: "scale", Volumes: c.volumes}
	err := c.run(ctx, rep)
	if err != nil {
		rep.Failure = err.Error()
	}
	rep.judge()
	rep.print(os.Stdout)
	if c.json != "" {
		err = errors.Join(err, rep.save(c.json))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "scale: FAILED: %v\n", err)
		return 1
	}
	fmt.Println("scale: no I/O error, no mismatch, every path came back")
	if c.strict && rep.missed() {
		return 2
	}
	return 0
}
