package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/csi-mpath/csi-mpath/pkg/agent"
	"github.com/csi-mpath/csi-mpath/pkg/agent/config"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/embedded"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/lio"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/nvmet"
	"github.com/csi-mpath/csi-mpath/pkg/agent/keeper"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store/directory"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store/lvmthin"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/durable"
)

// agentStop is how long the end of an agent waits for the calls that run.
const agentStop = 30 * time.Second

// agentParts are what an agent is made of, in the order in which they began.
type agentParts struct {
	log    *slog.Logger
	stops  []func() error
	keeper *keeper.Keeper
	server *agent.Server
	// serving are those that let callers in; failed is told how each ended.
	serving sync.WaitGroup
	failed  chan error
}

// runAgent serves until a signal.
func runAgent(out io.Writer, cfg *config.Config, signals <-chan os.Signal) error {
	a := &agentParts{log: slog.New(slog.NewJSONHandler(out, nil)), failed: make(chan error, 3)}
	ctx, cancel := context.WithCancel(context.Background())
	err := a.start(ctx, cfg)
	if err == nil {
		a.log.Info("ready", "version", version, "listen", cfg.Listen.String())
		select {
		case s := <-signals:
			a.log.Info("stopping", "signal", s.String())
		case err = <-a.failed:
		}
	}
	end, now := context.WithTimeout(context.Background(), agentStop)
	defer now()
	go func() {
		select {
		case <-signals:
			now()
		case <-end.Done():
		}
	}()
	if err = errors.Join(err, a.stop(end, cancel)); err != nil {
		return &exitError{exitFailure, err}
	}
	a.log.Info("stopped")
	return nil
}

// start begins everything: bytes, exports, what was, and only then callers.
func (a *agentParts) start(ctx context.Context, cfg *config.Config) error {
	pools, err := a.open(ctx, cfg)
	if err != nil {
		return err
	}
	began := time.Now()
	a.keeper, err = keeper.Open(ctx, keeper.Config{State: cfg.State, Pools: pools, Version: version, Log: a.log})
	if err != nil {
		return err
	}
	a.stops = append(a.stops, a.keeper.Close)
	a.log.Info("restored", "volumes", a.keeper.Stats().Volumes, "publications", a.keeper.Stats().Publications, "seconds", time.Since(began).Seconds())
	figures := agent.Figures{Stats: a.keeper.Stats, Usage: a.keeper.Usage}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), figures)
	a.server, err = agent.New(agent.Config{For: a.keeper.For, TLS: certificates(cfg), Version: version, Problems: figures.Problems, Log: a.log,
		Audit: a.log, Metrics: registry})
	if err != nil {
		return err
	}
	admin := agent.Admin{Figures: figures, Version: version, Orphans: a.keeper.Orphans, Connections: a.server.Connections}
	return a.listen(ctx, cfg, registry, admin)
}

// open opens stores and exporters.
func (a *agentParts) open(ctx context.Context, cfg *config.Config) ([]keeper.Pool, error) {
	exports := map[backend.Transport]export.Exporter{}
	for _, e := range cfg.Exports {
		x, err := openExport(e)
		if err != nil {
			return nil, fmt.Errorf("exports.%s: %w", e.Transport, err)
		}
		a.stops = append(a.stops, x.Close)
		exports[e.Transport] = x
	}
	if err := export.CheckLeft(ctx, unused(cfg.Exports)); err != nil {
		return nil, err
	}
	var pools []keeper.Pool
	for _, p := range cfg.Pools {
		s, err := openStore(ctx, cfg.State, p)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", p.Name, err)
		}
		a.stops = append(a.stops, s.Close)
		k := keeper.Pool{Name: p.Name, Store: s}
		for _, t := range p.Transports {
			k.Exports = append(k.Exports, exports[t])
		}
		pools = append(pools, k)
	}
	return pools, nil
}

func openExport(e config.Export) (export.Exporter, error) {
	switch e.Kind {
	case config.LIO:
		return lio.New(lio.Config{Portals: e.Portals})
	case config.NVMet:
		return nvmet.New(nvmet.Config{Portals: e.Portals})
	default:
		return embedded.New(embedded.Config{Transport: e.Transport, Portals: e.Portals})
	}
}

// unused are the kernel's targets that the configuration does not name.
func unused(now []config.Export) map[string]export.Lister {
	all := map[string]export.Lister{string(config.LIO): lio.Left, string(config.NVMet): nvmet.Left}
	for _, e := range now {
		delete(all, string(e.Kind))
	}
	return all
}

func openStore(ctx context.Context, state string, p config.Pool) (store.Store, error) {
	if l := p.LVMThin; l != nil {
		return lvmthin.Open(ctx, lvmthin.Config{VolumeGroup: l.VolumeGroup, ThinPool: l.ThinPool, QueueWhenFull: l.QueueWhenFull,
			Devices: l.Devices, Marks: l.Marks})
	}
	d := p.Directory
	return directory.Open(directory.Config{Path: d.Path, Known: filepath.Join(state, "pools", p.Name), Preallocate: d.Preallocate, Marks: d.Marks})
}

// listen lets callers in.
func (a *agentParts) listen(ctx context.Context, cfg *config.Config, metrics prometheus.Gatherer, admin agent.Admin) error {
	if err := durable.Own(filepath.Dir(cfg.Admin)); err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	local, err := listenUnix(cfg.Admin)
	if err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	a.serve(func() error { return admin.Serve(ctx, local) })
	if cfg.Metrics.IsValid() {
		l, err := net.Listen("tcp", cfg.Metrics.String())
		if err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
		a.serve(func() error { return agent.ServeMetrics(ctx, l, metrics) })
	}
	l, err := net.Listen("tcp", cfg.Listen.String())
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	a.serve(func() error { return a.server.Serve(l) })
	return nil
}

func (a *agentParts) serve(f func() error) { a.serving.Go(func() { a.failed <- f() }) }

// stop ends everything in reverse order: first those who let callers in, which
// cancel ends.
func (a *agentParts) stop(ctx context.Context, cancel func()) error {
	if a.server != nil {
		a.server.Shutdown(ctx)
	}
	cancel()
	a.serving.Wait()
	var errs []error
	for _, f := range slices.Backward(a.stops) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
