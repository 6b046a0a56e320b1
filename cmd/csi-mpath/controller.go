package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/csi-mpath/csi-mpath/pkg/agent/pki"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/backend/agentclient"
	"github.com/csi-mpath/csi-mpath/pkg/cluster"
	"github.com/csi-mpath/csi-mpath/pkg/driver"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// controllerFlags are how a controller is started.
type controllerFlags struct {
	config, endpoint, metrics, kubeconfig string
	check                                 bool
	untaint                               bool // remove cluster.NotReadyTaint
}

func controllerCommand() *cobra.Command {
	var f controllerFlags
	c := &cobra.Command{
		Use:   "controller --config FILE [--endpoint unix:///csi/csi.sock]",
		Short: "Serve the controller half of the CSI driver",
		Long: `controller answers CSI's controller calls over a unix socket: volumes and snapshots at
the storage hosts of its configuration, and who may reach them. It keeps nothing: several
may run at once.

The configuration is read again when it changes; a mistake in it changes nothing. One
storage host that is down leaves the others working. SIGTERM lets calls that run finish.

In a Kubernetes cluster, or with --kubeconfig, it refuses nodes that the cluster does not
have, and lists static volumes that are attached; while it does not know the cluster it
answers Unavailable. There the configuration may leave out cluster: the API server knows
it. Without a cluster it believes every node, and lists no static volumes.`,
		Example: `  csi-mpath controller --config controller.yaml --endpoint unix:///csi/csi.sock

  # controller.yaml
  cluster: 6f2e...            # kubectl get namespace kube-system -o jsonpath={.metadata.uid}
  backends:
  - name: east
    agent: {address: "storage-1.example:7443", ca: /pki/ca.crt, certificate: /pki/tls.crt, key: /pki/tls.key}`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := driver.LoadConfig(f.config)
			if err != nil {
				return usage(err)
			}
			if f.check {
				fmt.Fprintf(cmd.OutOrStdout(), "%s is right: %d backends\n", f.config, len(cfg.Backends))
				return nil
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return serveController(ctx, f, cfg)
		},
	}
	c.Flags().StringVarP(&f.config, "config", "c", "", "configuration, YAML")
	c.Flags().StringVar(&f.endpoint, "endpoint", endpointFromEnv(), "unix socket to serve; CSI_ENDPOINT is its default")
	c.Flags().StringVar(&f.metrics, "metrics", "", "address for /metrics, such as :9809; empty: none")
	c.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "file that says how the cluster is reached; empty: the cluster it runs in, if any")
	c.Flags().BoolVar(&f.untaint, "remove-not-ready-taint", false, "remove the taint "+cluster.NotReadyTaint+" from nodes that have the driver")
	c.Flags().BoolVar(&f.check, "check", false, "read and check the configuration, serve nothing")
	c.Flags().AddGoFlag(verbosity())
	cobra.CheckErr(c.MarkFlagRequired("config"))
	return c
}

// endpointFromEnv is where sidecars expect a driver.
func endpointFromEnv() string {
	if e := os.Getenv("CSI_ENDPOINT"); e != "" {
		return e
	}
	return "unix:///csi/csi.sock"
}

// verbosity is klog's -v, as all components of Kubernetes have it.
func verbosity() *flag.Flag {
	set := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(set)
	return set.Lookup("v")
}

// serveController answers calls until ctx ends.
func serveController(ctx context.Context, f controllerFlags, cfg driver.Config) error {
	defer klog.Flush()
	faultpoint.Arm()
	client, err := f.connect()
	if err != nil {
		return err
	}
	if cfg.Cluster == "" && client != nil {
		if cfg.Cluster, err = cluster.UID(ctx, client); err != nil {
			return err
		}
	}
	backends, err := driver.NewBackends(cfg, openAgent)
	if err != nil {
		return err
	}
	defer backends.Close()
	serving := &driver.Controller{Backends: backends}
	registry := prometheus.NewRegistry()
	follow, err := f.follow(serving, client, registry)
	if err != nil {
		return err
	}
	observe, err := driver.NewMetrics(registry)
	if err != nil {
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
	var following sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer func() { cancel(); following.Wait() }()
	following.Go(func() { backends.Follow(ctx, f.config) })
	following.Go(func() { follow(ctx) })
	klog.InfoS("controller", "version", version, "endpoint", f.endpoint, "backends", len(cfg.Backends))
	return driver.Serve(ctx, l, func(s *grpc.Server) {
		csi.RegisterIdentityServer(s, &driver.Identity{Version: version, Backends: backends})
		csi.RegisterControllerServer(s, serving)
	}, observe)
}

// connect makes a client of the cluster; nil if there is none.
func (f *controllerFlags) connect() (kubernetes.Interface, error) {
	client, err := cluster.Connect(f.kubeconfig, "csi-mpath-controller/"+version)
	if errors.Is(err, cluster.ErrNone) {
		klog.InfoS("no cluster: every node is believed, static volumes are not listed")
		return nil, nil
	}
	return client, err
}

// followCluster tells a controller of the cluster.
func followCluster(c *driver.Controller, known *cluster.Cluster) {
	c.HasNode = known.HasNode
	c.Static = func(ctx context.Context) ([]driver.StaticVolume, error) {
		all, err := known.Attached(ctx)
		return staticOf(all), err
	}
}

// staticOf are those of the attached volumes that no backend lists.
func staticOf(attached []cluster.Volume) (out []driver.StaticVolume) {
	for _, v := range attached {
		if attrs.IsStatic(v.Attributes) {
			out = append(out, driver.StaticVolume{Handle: v.Handle, Size: v.Size, Nodes: v.Nodes})
		}
	}
	return out
}

// serveMetrics serves them at an address, until what it returns is closed, and
// /healthz, which says that the process is there: a probe that asked storage would
// kill what keeps volumes alive.
func serveMetrics(address string, registry *prometheus.Registry) (io.Closer, error) {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	if address == "" {
		return server, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			klog.ErrorS(err, "metrics are not served any more", "address", address)
		}
	}()
	return server, nil
}

// openAgent is a storage host's agent as a backend.
func openAgent(c driver.BackendConfig) (backend.Backend, error) {
	return agentclient.New(agentclient.Config{
		Address: c.Agent.Address, ServerName: c.Agent.ServerName,
		TLS:    pki.Files{CA: c.Agent.CA, Cert: c.Agent.Certificate, Key: c.Agent.Key},
		Failed: func(err error) { klog.ErrorS(err, "changed certificates cannot be used", "backend", c.Name) },
	})
}
