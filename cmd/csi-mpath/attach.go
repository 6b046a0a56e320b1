package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/kernel"
	"github.com/csi-mpath/csi-mpath/pkg/supervise"
)

type attachFlags struct {
	cfg                       device.Config
	sources                   []string
	which                     protocolFlags
	noPath, failback, merge   string
	polling                   string
	socket, block             string
	openTimeout, shutdownTime time.Duration
	stats                     bool
}

func attachCommand() *cobra.Command {
	f := &attachFlags{}
	c := &cobra.Command{
		Use: `attach --iscsi PORTAL[,PORTAL…] --target IQN --lun N {--socket PATH | --device auto}
  csi-mpath attach --nvme-tcp PORTAL[,PORTAL…] --subsystem NQN --nsid N {--socket PATH | --device auto}`,
		Short: "Attach one volume in the foreground and serve it over NBD",
		Long: `attach connects to every portal, over iSCSI or over NVMe/TCP, checks that
all of them show the same volume, and serves it: on a unix socket as an NBD export
(--socket), as a block device of the kernel (--device auto or /dev/nbdN; needs root
and the nbd module), or both.

SIGTERM stops reading requests, answers what is in flight, and logs out. A block
device stays then, waiting for the next attach of the volume, which takes it over
without an I/O error; 'csi-mpath detach' removes it. SIGINT (Ctrl-C) removes it,
unless it is in use. A second signal ends everything at once.

The volume is held by a worker process. When it dies, attach starts the next one
at once, and a block device goes on where it stopped.

On a terminal attach shows a live table of the paths, otherwise a line per event.`,
		Example: `  csi-mpath attach --iscsi 192.0.2.10,192.0.2.11 --target iqn.2026-01.com.example:vol1 \
      --lun 1 --socket /tmp/vol1.sock
  csi-mpath attach --nvme-tcp 192.0.2.10,192.0.2.11 --subsystem nqn.2026-01.com.example:vol2 \
      --nsid 1 --socket /tmp/vol2.sock
  nbdinfo nbd+unix:///?socket=/tmp/vol1.sock`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.finish(); err != nil {
				return usage(err)
			}
			if !supervise.Worker() {
				return f.supervise(cmd.OutOrStdout())
			}
			return f.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f.register(c)
	return c
}

// registerVolume registers what says which volume, and how to get at it.
func (f *attachFlags) registerVolume(c *cobra.Command) {
	fl := c.Flags()
	f.which.register(fl)
	fl.StringVar(&f.cfg.WWID, "wwid", "", "expected device identity (naa.…, eui.…, uuid.…): anything else is refused")
	fl.StringVar(&f.cfg.Name, "name", "", "name of the volume in tables and events (default: target and LUN, or subsystem and namespace)")
	fl.StringSliceVar(&f.sources, "source", nil, "local address or interface for each portal, in order")
	fl.IntVar(&f.cfg.QueueDepth, "queue-depth", device.DefaultQueueDepth, "commands in flight per path")
	fl.DurationVar(&f.openTimeout, "open-timeout", 30*time.Second, "how long to wait for the first paths")
	fl.StringVar(&f.cfg.StateDir, "state-dir", defaultStateDir(), "directory for what must outlive the process")
}

func (f *attachFlags) register(c *cobra.Command) {
	f.registerVolume(c)
	fl := c.Flags()
	fl.StringVar(&f.socket, "socket", "", "unix socket to serve NBD on")
	fl.StringVar(&f.block, "device", "", "attach to the kernel: auto, or the device wanted, like /dev/nbd3")
	fl.StringVar((*string)(&f.cfg.Attach), "attach", string(device.AttachNBD), "how --device attaches: nbd, or fuse (a loop device over FUSE, for development on machines without nbd: it ends with the process)")
	fl.BoolVar(&f.cfg.ReadOnly, "read-only", false, "refuse writes")
	fl.StringVar(&f.cfg.PathSelector, "path-selector", "service-time", pathSelectors)
	fl.IntVar(&f.cfg.MinPaths, "min-paths", 1, "paths that must be up before the volume is served")
	fl.DurationVar(&f.cfg.PathTimeout, "path-timeout", device.DefaultPathTimeout, "a path that sends nothing for so long while it owes an answer is dropped")
	fl.DurationVar(&f.cfg.CommandTimeout, "command-timeout", device.DefaultCommandTimeout, "a command unanswered for so long is aborted")
	fl.StringVar(&f.noPath, "no-path-timeout", "never", "how long I/O is held while no path works: never, or a duration")
	fl.StringVar(&f.failback, "failback", "immediate", "when I/O returns to a better group of paths that came back: immediate, manual, or a duration")
	fl.StringVar(&f.merge, "merge-deadline", "0", "how long contiguous requests may wait to go as one command: 0 (only what comes together), a duration like 20us, auto, or off")
	fl.StringVar(&f.polling, "polling", "off", "whether readers look again before they sleep: off, adaptive, or a duration like 50us; pays only with a spare CPU")
	fl.DurationVar(&f.shutdownTime, "shutdown-timeout", 30*time.Second, "how long the end may wait for answers and fences")
	fl.BoolVar(&f.cfg.Reserve, "reserve", false, "keep every other host from writing, by a reservation; whoever had the volume before is put out")
	fl.BoolVar(&f.stats, "stats", false, "print counters as JSON at the end")
	c.MarkFlagsOneRequired("socket", "device")
}

// finish turns flag texts into the configuration.
func (f *attachFlags) finish() (err error) {
	if f.cfg.Protocol, f.cfg.Portals, err = f.which.protocol(); err != nil {
		return err
	}
	f.cfg.Sources = f.sources
	f.cfg.NoPathTimeout = datapath.Never
	if f.noPath != "never" {
		if f.cfg.NoPathTimeout, err = time.ParseDuration(f.noPath); err != nil || f.cfg.NoPathTimeout < 0 {
			return fmt.Errorf("--no-path-timeout %q is neither 'never' nor a duration like 30s", f.noPath)
		}
	}
	if f.cfg.Failback, err = device.ParseFailback(f.failback); err != nil {
		return err
	}
	if f.cfg.MergeDeadline, err = device.ParseMergeDeadline(f.merge); err != nil {
		return err
	}
	if f.cfg.Polling, err = device.ParsePolling(f.polling); err != nil {
		return err
	}
	f.cfg.Replays = f.block != "" && f.cfg.Attach != device.AttachFUSE
	if _, err = f.index(); err != nil {
		return err
	}
	if f.cfg.Attach == device.AttachFUSE && f.block != "auto" {
		return fmt.Errorf("--attach=fuse takes any free loop device: say --device=auto")
	}
	return f.cfg.Check()
}

// index is the kernel device wanted.
func (f *attachFlags) index() (int, error) {
	if f.block == "" || f.block == "auto" {
		return kernel.FreeIndex, nil
	}
	n, err := strconv.Atoi(strings.TrimPrefix(f.block, "/dev/nbd"))
	if err != nil || n < 0 || !strings.HasPrefix(f.block, "/dev/nbd") {
		return 0, fmt.Errorf("--device %q is neither 'auto' nor /dev/nbdN", f.block)
	}
	return n, nil
}

// supervise is the parent: it holds nothing.
func (f *attachFlags) supervise(out io.Writer) error {
	show := newDisplay(out)
	code, err := supervise.Run(supervise.Config{Args: os.Args[1:], Log: show.line, Prepare: func() {
		if f.block == "" {
			return
		}
		if err := device.FlushForReclaim(); err != nil {
			show.line("warning: %v", err)
		}
	}})
	if err != nil || code == 0 {
		return err
	}
	return &exitError{code: code} // the worker has said why
}

// run is the worker.
func (f *attachFlags) run(ctx context.Context, out io.Writer) error {
	beat := supervise.NewBeat()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	show := newDisplay(out)
	if f.block != "" {
		for _, w := range device.HoldMemory() {
			show.line("warning: %v", w)
		}
	}
	var l net.Listener
	if f.socket != "" {
		var err error
		if l, err = listenUnix(f.socket); err != nil {
			return usage(err)
		}
		defer func() { _ = l.Close() }()
	}
	f.cfg.Events = show.event
	show.line("attaching %s over %s", f.cfg.Volume(), strings.Join(f.cfg.Portals, ", "))
	dev, err := f.open(ctx, signals)
	if err != nil {
		return &exitError{exitNoPath, err}
	}
	w := &worker{f: f, dev: dev, show: show, signals: signals, beat: beat}
	return w.serve(l)
}

// open brings the volume up, unless a signal comes first.
func (f *attachFlags) open(ctx context.Context, signals chan os.Signal) (*device.Device, error) {
	limit := f.openTimeout
	if f.cfg.Patient = supervise.Restarted(); f.cfg.Patient {
		limit = 365 * 24 * time.Hour // it was served before: its I/O waits for us (I5, I8)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case s := <-signals:
			cancel()
			signals <- s // whoever comes next sees it too
		case <-done:
		}
	}()
	return device.Open(ctx, f.cfg)
}
