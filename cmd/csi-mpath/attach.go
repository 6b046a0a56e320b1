package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

type attachFlags struct {
	cfg                       device.Config
	portals, sources          []string
	lun, noPath, secretFile   string
	socket                    string
	openTimeout, shutdownTime time.Duration
	stats                     bool
}

func attachCommand() *cobra.Command {
	f := &attachFlags{}
	c := &cobra.Command{
		Use:   "attach --iscsi PORTAL[,PORTAL…] --target IQN --lun N --socket PATH",
		Short: "Attach one volume in the foreground and serve it over NBD",
		Long: `attach logs in to every portal, checks that all of them show the same volume,
and serves it on a unix socket as an NBD export until SIGTERM or SIGINT. Then it
stops reading requests, answers what is in flight, and logs out. A second signal
ends it at once.

On a terminal it shows a live table of the paths, otherwise a line per event.`,
		Example: `  csi-mpath attach --iscsi 192.0.2.10,192.0.2.11 --target iqn.2026-01.com.example:vol1 \
      --lun 1 --socket /tmp/vol1.sock
  nbdinfo nbd+unix:///?socket=/tmp/vol1.sock`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	f.register(c)
	return c
}

func (f *attachFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringSliceVar(&f.portals, "iscsi", nil, "portals, host[:port] or [IPv6]:port, comma-separated")
	fl.StringVar(&f.cfg.Target, "target", "", "iSCSI target name")
	fl.StringVar(&f.lun, "lun", "0", "logical unit number")
	fl.StringVar(&f.socket, "socket", "", "unix socket to serve NBD on")
	fl.StringVar(&f.cfg.Initiator, "initiator", "", "iSCSI initiator name (default: made of this host's name)")
	fl.StringVar(&f.secretFile, "chap-secret-file", "", "file with username=, password= and for mutual CHAP username_in=, password_in=; mode 600")
	fl.StringVar(&f.cfg.WWID, "wwid", "", "expected device identity (naa.…, eui.…): anything else is refused")
	fl.StringVar(&f.cfg.Name, "name", "", "name of the volume in tables and events (default: target and LUN)")
	fl.BoolVar(&f.cfg.ReadOnly, "read-only", false, "refuse writes")
	fl.StringSliceVar(&f.sources, "source", nil, "local address or interface for each portal, in order")
	fl.StringVar(&f.cfg.PathSelector, "path-selector", "service-time", "service-time or round-robin")
	fl.IntVar(&f.cfg.MinPaths, "min-paths", 1, "paths that must be up before the volume is served")
	fl.IntVar(&f.cfg.QueueDepth, "queue-depth", device.DefaultQueueDepth, "commands in flight per path")
	fl.DurationVar(&f.cfg.PathTimeout, "path-timeout", device.DefaultPathTimeout, "a path that sends nothing for so long while it owes an answer is dropped")
	fl.DurationVar(&f.cfg.CommandTimeout, "command-timeout", device.DefaultCommandTimeout, "a command unanswered for so long is aborted")
	fl.DurationVar(&f.cfg.FenceTimeout, "fence-timeout", device.DefaultFenceTimeout, "without proof, a lost connection's writes are taken for dead after this")
	fl.StringVar(&f.noPath, "no-path-timeout", "never", "how long I/O is held while no path works: never, or a duration")
	fl.DurationVar(&f.openTimeout, "open-timeout", 30*time.Second, "how long to wait for the first paths")
	fl.DurationVar(&f.shutdownTime, "shutdown-timeout", 30*time.Second, "how long the end may wait for answers and fences")
	fl.StringVar(&f.cfg.StateDir, "state-dir", defaultStateDir(), "directory for what must outlive the process")
	fl.BoolVar(&f.stats, "stats", false, "print counters as JSON at the end")
	for _, name := range []string{"iscsi", "target", "socket"} {
		_ = c.MarkFlagRequired(name)
	}
}

// finish turns flag texts into the configuration.
func (f *attachFlags) finish() (err error) {
	f.cfg.Portals, f.cfg.Sources = f.portals, f.sources
	if f.cfg.LUN, err = scsi.ParseLUN(f.lun); err != nil {
		return err
	}
	f.cfg.NoPathTimeout = datapath.Never
	if f.noPath != "never" {
		if f.cfg.NoPathTimeout, err = time.ParseDuration(f.noPath); err != nil || f.cfg.NoPathTimeout < 0 {
			return fmt.Errorf("--no-path-timeout %q is neither 'never' nor a duration like 30s", f.noPath)
		}
	}
	if f.secretFile != "" {
		f.cfg.Auth, err = device.ReadSecretFile(f.secretFile)
	}
	return err
}

func (f *attachFlags) run(ctx context.Context, out io.Writer) error {
	if err := f.finish(); err != nil {
		return usage(err)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	l, err := listenUnix(f.socket)
	if err != nil {
		return usage(err)
	}
	defer func() { _ = l.Close() }()
	show := newDisplay(out, f.socket)
	f.cfg.Events = show.event
	show.line("attaching %s LUN %s over %s", f.cfg.Target, f.lun, strings.Join(f.portals, ", "))
	octx, cancel := context.WithTimeout(ctx, f.openTimeout)
	dev, err := device.Open(octx, f.cfg)
	cancel()
	if err != nil {
		return &exitError{exitNoPath, err}
	}
	return f.serve(ctx, l, dev, show)
}

// serve runs until a signal, then ends in reverse order.
func (f *attachFlags) serve(ctx context.Context, l net.Listener, dev *device.Device, show *display) error {
	srv := nbd.NewServer(map[string]nbd.Export{dev.Name(): dev}, nbd.Config{}, func(client string, err error) {
		show.line("NBD client %s: %v", client, err)
	})
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(context.Background(), l) }()
	show.ready(dev)
	var err error
	select {
	case <-ctx.Done():
		show.line("stopping: answering what is in flight (a second signal ends it at once)")
	case err = <-failed:
	}
	show.stop()
	end, cancel := context.WithTimeout(context.Background(), f.shutdownTime)
	defer cancel()
	end, again := signal.NotifyContext(end, syscall.SIGINT, syscall.SIGTERM)
	defer again()
	err = errors.Join(err, unsettled(srv.Drain(end)), unsettled(dev.Close(end)))
	if f.stats {
		printStats(show.out, srv.Stats(), dev.Status())
	}
	if err == nil {
		show.line("detached %s", dev.Name())
	}
	return err
}

func unsettled(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitUnsettle, err}
}

// listenUnix listens on a unix socket that only this user may use. A socket
// left by a dead process is replaced; anything else in the way is not touched.
func listenUnix(path string) (net.Listener, error) {
	if len(path) > 107 {
		return nil, fmt.Errorf("--socket %s is longer than the 107 bytes a unix socket's path may have", path)
	}
	st, err := os.Lstat(path)
	switch {
	case err == nil && st.Mode()&os.ModeSocket == 0:
		return nil, fmt.Errorf("--socket %s exists and is no socket: choose another path", path)
	case err == nil:
		if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
			_ = c.Close()
			return nil, fmt.Errorf("--socket %s is served by another process: choose another path", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("--socket: %w", err)
		}
	}
	old := syscall.Umask(0o177)
	l, err := net.Listen("unix", path)
	syscall.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("--socket %s: %w", path, err)
	}
	return l, nil
}
