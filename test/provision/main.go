// Command provision makes a thousand volumes through an agent by fifty callers at
// once, publishes all, kills the agent and looks how long it takes until they are
// served again, and takes everything back.
//
//	provision --bin bin/csi-mpath
//
// Exit code 1: a call failed, a volume was not as it was before the kill, a file
// was left. Figures are compared with their goals, but decide the exit code only
// with --strict.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/csi-mpath/csi-mpath/test/host"
)

type config struct {
	bin     string
	volumes int
	callers int
	dir     string
	json    string
	strict  bool
}

func main() {
	var c config
	flag.StringVar(&c.bin, "bin", "", "csi-mpath")
	flag.IntVar(&c.volumes, "volumes", 1000, "volumes")
	flag.IntVar(&c.callers, "callers", 50, "calls at a time")
	flag.StringVar(&c.dir, "dir", "", "where the storage host's files go; empty is a temporary directory")
	flag.StringVar(&c.json, "json", "", "file for the report as JSON")
	flag.BoolVar(&c.strict, "strict", false, "exit with 2 when a goal was missed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(c.main(ctx))
}

func (c *config) main(ctx context.Context) int {
	rep, err := c.run(ctx)
	if rep != nil {
		rep.print(os.Stdout)
		if c.json != "" {
			err = errors.Join(err, rep.save(c.json))
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "provision: FAILED: %v\n", err)
		return 1
	}
	fmt.Println("provision: no call failed, everything was served again, nothing was left")
	if c.strict && rep.Restored > goalRestored {
		return 2
	}
	return 0
}

// run is the whole story.
func (c *config) run(ctx context.Context) (rep *report, err error) {
	dir, err := os.MkdirTemp(c.dir, "provision")
	if err != nil {
		return nil, err
	}
	h, err := host.New(c.bin, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	defer func() { err = errors.Join(err, h.Close(), os.RemoveAll(dir)) }()
	if err := h.Start(ctx); err != nil {
		return nil, err
	}
	client, err := h.Client()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	r := &run{config: c, host: h, backend: client, rep: &report{Volumes: c.volumes, Callers: c.callers}}
	return r.rep, r.tell(ctx)
}

func (r *report) save(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644) //nolint:gosec // a report is no secret
}

// goalRestored is the longest a restart of the agent may take.
const goalRestored = 10 * time.Second
