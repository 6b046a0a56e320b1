package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/csi-mpath/csi-mpath/pkg/attach"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/cluster"
	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/driver"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
	"github.com/csi-mpath/csi-mpath/pkg/health"
	"github.com/csi-mpath/csi-mpath/pkg/mount"
	"github.com/csi-mpath/csi-mpath/pkg/mpv"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/kernel"
	"github.com/csi-mpath/csi-mpath/pkg/supervise"
	"github.com/csi-mpath/csi-mpath/pkg/volume"
)

// nodeFlags are how a node plugin is started.
type nodeFlags struct {
	name, cluster, endpoint, metrics, state, attach string
	registration, kubeletEndpoint, pod, kubeconfig  string
	limit                                           int64
	report                                          atomic.Pointer[mpv.Reporter] // nil: nobody reads it
}

func nodeCommand() *cobra.Command {
	var f nodeFlags
	c := &cobra.Command{
		Use:   "node --node-name NAME [--cluster UID] [--endpoint unix:///csi/csi.sock]",
		Short: "Serve the node half of the CSI driver",
		Long: `node answers CSI's node calls over a unix socket: it stages, publishes, expands and takes
away volumes, each a block device over several paths, which this process serves.

When it starts it first brings back what was served before, from its state directory, and
only then answers. While another one serves from the same state directory it waits for its
end: two pods of a DaemonSet overlap in an upgrade. SIGTERM leaves block devices and mounts for the next one. SIGUSR1 says
that the machine goes down: I/O that no path takes fails after shutdownTimeout from then on.
A worker process holds the volumes; when it dies, the next one starts at once.`,
		Example: `  csi-mpath node --node-name "$NODE_ID" --cluster 6f2e... \
      --registration /registration --kubelet-endpoint /var/lib/kubelet/plugins/csi-mpath.io/csi.sock`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return usage(err)
			}
			if !supervise.Worker() {
				return f.supervise()
			}
			if err := f.run(cmd.Context()); err != nil {
				return failure(err)
			}
			return nil
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.name, "node-name", os.Getenv("NODE_ID"), "name of the node in the cluster; NODE_ID is its default")
	fl.StringVar(&f.cluster, "cluster", "", "the cluster: the UID of its namespace kube-system, as in the controller's configuration; empty: the API server says it")
	fl.StringVar(&f.pod, "pod", os.Getenv("POD_NAME"), "name of the pod, which the registration socket carries; POD_NAME is its default")
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "file that says how the cluster is reached; empty: the cluster it runs in, if any")
	fl.StringVar(&f.endpoint, "endpoint", endpointFromEnv(), "unix socket to serve; CSI_ENDPOINT is its default")
	fl.StringVar(&f.registration, "registration", "", "the kubelet's directory of plugins' sockets, to register in; empty: somebody else does")
	fl.StringVar(&f.kubeletEndpoint, "kubelet-endpoint", "", "the endpoint's path as the kubelet sees it, with --registration")
	fl.StringVar(&f.metrics, "metrics", "", "address for /metrics and /healthz, such as :9809; empty: none")
	fl.StringVar(&f.state, "state-dir", defaultStateDir(), "directory for what must outlive the process")
	fl.StringVar(&f.attach, "attach", string(device.AttachNBD), "how volumes become block devices: nbd, or fuse (for development: it ends with the process)")
	fl.Int64Var(&f.limit, "max-volumes", 0, "how many volumes the node may have; 0: no limit is told")
	fl.AddGoFlag(verbosity())
	c.AddCommand(discardCommand(), loadModuleCommand())
	return c
}

// volumesDir is where a node's volumes are, in its state directory.
func volumesDir(state string) string { return filepath.Join(state, "volumes") }

func discardCommand() *cobra.Command {
	var state string
	c := &cobra.Command{
		Use:   "discard VOLUME",
		Short: "Give up what a volume could not write, because its storage is gone",
		Long: `discard is for a volume that cannot be unstaged because its storage will not come back:
somebody deleted it there, or took it from this node. The next NodeUnstageVolume waits for
no storage. What the volume could not write is lost.`,
		Example: "  csi-mpath node discard 1.east.fast.v-2f6c",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := volume.Discard(volumesDir(state), args[0]); err != nil {
				return &exitError{exitFailure, err}
			}
			return nil
		},
	}
	c.Flags().StringVar(&state, "state-dir", defaultStateDir(), "state directory of the node plugin")
	return c
}

func (f *nodeFlags) check() error {
	switch {
	case f.name == "" || len(f.name) > backend.MaxNode:
		return fmt.Errorf("--node-name: want the node's name, 1 to %d bytes", backend.MaxNode)
	case f.cluster == "" && !cluster.Known(f.kubeconfig):
		return errors.New("--cluster: want the UID of the cluster's namespace kube-system, or a cluster that can be asked")
	case f.attach != string(device.AttachNBD) && f.attach != string(device.AttachFUSE):
		return fmt.Errorf("--attach %q: want nbd or fuse", f.attach)
	case (f.registration == "") != (f.kubeletEndpoint == ""):
		return errors.New("--registration and --kubelet-endpoint go together")
	case f.limit < 0:
		return errors.New("--max-volumes is negative")
	}
	return nil
}

// failure is something that went wrong while running, unless it says what it is.
func failure(err error) error {
	var known *exitError
	if errors.As(err, &known) {
		return err
	}
	return &exitError{exitFailure, err}
}

// supervise is the parent: it holds nothing.
func (f *nodeFlags) supervise() error {
	release, err := f.hold("node.lock")
	if err != nil || release == nil {
		return err
	}
	defer release()
	code, err := supervise.Run(supervise.Config{Args: os.Args[1:], Log: klog.Infof, Prepare: func() {
		if err := device.FlushForReclaim(); err != nil {
			klog.ErrorS(err, "the node may stall when it runs out of memory")
		}
	}})
	if err != nil || code == 0 {
		return err
	}
	return &exitError{code: code} // the worker has said why
}

// run is the worker: what was served before comes back before anybody is answered
// (I8).
func (f *nodeFlags) run(ctx context.Context) error {
	defer klog.Flush()
	if !supervise.Restarted() {
		faultpoint.Arm() // one kill, not one of each worker
	}
	beat := supervise.NewBeat()
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	for _, w := range device.HoldMemory() {
		klog.Warning(w)
	}
	if f.attach == string(device.AttachNBD) {
		if err := kernel.New().Available(ctx); err != nil {
			return fmt.Errorf("this node cannot have volumes: %w", err) // and is not registered
		}
	}
	release, err := f.hold("worker.lock") // of a parent that was killed, the worker may still be ending
	if err != nil || release == nil {
		return err
	}
	defer release()
	if err := f.identify(ctx); err != nil {
		return err
	}
	volumes, err := f.open()
	if err != nil {
		return err
	}
	ending := make(chan struct{})
	go beat.Run(ending, func() { _ = volumes.Volumes() })
	defer close(ending)
	if err := volumes.Recover(ctx); err != nil {
		klog.ErrorS(err, "not all volumes are back yet; they go on trying")
	}
	beat.Ready()
	f.shutdownOnSignal(ctx, volumes)
	err = f.serve(ctx, volumes)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	return errors.Join(err, unsettled(volumes.Close(last)))
}

// leaveWithin bounds the end, also of a machine whose network went first: what is not
// answered by then comes again to the next process.
const leaveWithin = 8 * time.Second

func (f *nodeFlags) open() (*volume.Node, error) {
	opener := attach.New(attach.Config{State: f.state, Face: attach.Kernel(device.Attachment(f.attach)),
		Initiator: func(t backend.Transport) string { return driver.InitiatorName(t, f.cluster, f.name) },
		Events: func(id string, e datapath.Event) {
			klog.InfoS("path", "volume", id, "event", e.Kind, "path", e.Path, "detail", e.Detail)
			f.pathChanged(id, e)
		}})
	return volume.Open(volume.Config{State: volumesDir(f.state), Devices: opener, Mounts: mount.New(),
		Events: func(e volume.Event) {
			klog.InfoS("volume", "volume", e.Volume, "event", e.Kind, "message", e.Message)
			f.happened(e)
		}})
}

// shutdownOnSignal is told that the machine goes down.
func (f *nodeFlags) shutdownOnSignal(ctx context.Context, volumes *volume.Node) {
	down := make(chan os.Signal, 1)
	signal.Notify(down, syscall.SIGUSR1)
	go func() {
		defer signal.Stop(down)
		select {
		case <-down:
			klog.Info("the machine goes down: I/O that no path takes fails after shutdownTimeout")
			volumes.Shutdown()
		case <-ctx.Done():
		}
	}()
}

// serve answers calls until ctx ends.
func (f *nodeFlags) serve(ctx context.Context, volumes *volume.Node) error {
	registry := prometheus.NewRegistry()
	observe, err := driver.NewMetrics(registry)
	if err != nil {
		return err
	}
	endReports, err := f.reports(ctx, volumes, registry)
	if err != nil {
		return err
	}
	defer endReports()
	if err := registry.Register(health.NewCollector(func() []health.Numbers { return numbers(volumes) })); err != nil {
		return err
	}
	closeMetrics, err := serveMetrics(f.metrics, registry)
	if err != nil {
		return err
	}
	defer func() { _ = closeMetrics.Close() }()
	l, err := driver.Listen(f.endpoint)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	registered, err := f.register(ctx)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	klog.InfoS("node", "version", version, "endpoint", f.endpoint, "node", f.name, "volumes", len(volumes.Volumes()))
	err = driver.Serve(ctx, l, func(s *grpc.Server) {
		csi.RegisterIdentityServer(s, &driver.Identity{Version: version})
		csi.RegisterNodeServer(s, &driver.Node{ID: f.name, Volumes: volumes, Limit: f.limit})
	}, observe)
	cancel()
	return errors.Join(err, <-registered)
}

// register offers the plugin to the kubelet, if that is asked for.
func (f *nodeFlags) register(ctx context.Context) (done <-chan error, err error) {
	end := make(chan error, 1)
	if f.registration == "" {
		end <- nil
		return end, nil
	}
	sweepSockets(f.registration, f.registrationSocket())
	l, err := driver.Listen(f.registrationSocket())
	if err != nil {
		return nil, err
	}
	r := &driver.Registrar{Endpoint: f.kubeletEndpoint, Registered: func(err error) {
		if err != nil {
			klog.ErrorS(err, "not registered")
		}
	}}
	go func() {
		end <- driver.Serve(ctx, l, func(s *grpc.Server) { registration.RegisterRegistrationServer(s, r) }, nil)
	}()
	return end, nil
}

// numbers are those of all volumes. One that nobody serves has no path.
func numbers(volumes *volume.Node) (out []health.Numbers) {
	for _, id := range volumes.Volumes() {
		s, _ := volumes.Status(id)
		n := health.Numbers{Volume: id, Outstanding: s.Held, InDoubt: s.InDoubt}
		for _, p := range s.Paths {
			if p.Up {
				n.Up++
			} else {
				n.Down++
			}
		}
		out = append(out, n)
	}
	return out
}
