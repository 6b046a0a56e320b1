package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/csi-mpath/csi-mpath/pkg/api/v1alpha1"
	"github.com/csi-mpath/csi-mpath/pkg/cluster"
	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/driver"
	"github.com/csi-mpath/csi-mpath/pkg/health"
	"github.com/csi-mpath/csi-mpath/pkg/mpv"
	"github.com/csi-mpath/csi-mpath/pkg/volume"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// follow makes a controller follow its cluster, and the cluster see what the
// controller does, while what it returns runs.
func (f *controllerFlags) follow(c *driver.Controller, client kubernetes.Interface, registry prometheus.Registerer) (func(context.Context), error) {
	if client == nil {
		return func(context.Context) {}, nil
	}
	known := cluster.New(client, driver.Name)
	followCluster(c, known)
	parts := []func(context.Context){known.Run}
	objects, err := cluster.Dynamic(f.kubeconfig, "csi-mpath-controller/"+version)
	if err != nil {
		return nil, err
	}
	keeper := mpv.NewKeeper(objects, func(handle string) *meta.OwnerReference { return ownerOf(known, handle) })
	c.Told = driver.Told{Unpublished: keeper.Unpublished, Tuned: keeper.Tuned, Published: func(volume, node string, to attrs.Attachment) {
		keeper.Published(specOf(volume, node, to))
	}}
	parts = append(parts, keeper.Run)
	if f.untaint {
		parts = append(parts, func(ctx context.Context) { cluster.RemoveTaints(ctx, client, driver.Name) })
	}
	if ns := os.Getenv("POD_NAMESPACE"); ns != "" {
		told := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "csi_mpath_events_total", Help: "Events made, by reason and result."}, []string{"reason", "result"})
		if err := registry.Register(told); err != nil {
			return nil, err
		}
		teller := &mpv.Teller{Client: client, Dynamic: objects, Persistent: known.Persistent, Namespace: ns, Name: podName(),
			Attached: func(ctx context.Context) (map[mpv.Key]bool, error) { return attachedKeys(ctx, known) },
			Told:     func(reason string, err error) { told.WithLabelValues(reason, result(err)).Inc() }}
		parts = append(parts, teller.Run)
	}
	return func(ctx context.Context) {
		var all sync.WaitGroup
		for _, p := range parts {
			all.Go(func() { p(ctx) })
		}
		all.Wait()
	}, nil
}

func result(err error) string {
	if err != nil {
		return "failed"
	}
	return "done"
}

// podName tells replicas apart.
func podName() string {
	if n := os.Getenv("POD_NAME"); n != "" {
		return n
	}
	n, _ := os.Hostname()
	return n
}

func ownerOf(known *cluster.Cluster, handle string) *meta.OwnerReference {
	pv := known.Persistent(handle)
	if pv == nil {
		return nil
	}
	return &meta.OwnerReference{APIVersion: "v1", Kind: "PersistentVolume", Name: pv.Name, UID: pv.UID}
}

func specOf(volume, node string, to attrs.Attachment) v1alpha1.MultipathVolumeSpec {
	s := v1alpha1.MultipathVolumeSpec{Volume: volume, Node: node, Generation: to.Generation, Tunables: to.Tunables}
	for _, p := range to.Portals {
		s.Portals = append(s.Portals, p.Address)
	}
	return s
}

func attachedKeys(ctx context.Context, known *cluster.Cluster) (map[mpv.Key]bool, error) {
	all, err := known.Attached(ctx)
	if err != nil {
		return nil, err
	}
	out := map[mpv.Key]bool{}
	for _, v := range all {
		for _, n := range v.Nodes {
			out[mpv.Key{Volume: v.Handle, Node: n}] = true
		}
	}
	return out, nil
}

// reports makes the cluster see the node's volumes, if there is a cluster, until what
// it returns is called.
func (f *nodeFlags) reports(ctx context.Context, volumes *volume.Node, registry prometheus.Registerer) (end func(), err error) {
	objects, err := cluster.Dynamic(f.kubeconfig, "csi-mpath-node/"+version)
	if errors.Is(err, cluster.ErrNone) {
		return func() {}, nil
	}
	if err != nil {
		return nil, err
	}
	writes := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "csi_mpath_status_writes_total", Help: "Statuses of MultipathVolumes written, by result."}, []string{"result"})
	if err := registry.Register(writes); err != nil {
		return nil, err
	}
	r := mpv.NewReporter(objects, f.name, mpv.Volumes{List: volumes.Volumes, Tune: volumes.Tune, Revoke: volumes.Revoke,
		Seen:    func(id string) (health.Seen, bool) { return seen(volumes, id) },
		Refused: func(id string) bool { return refused(volumes, id) }})
	r.Wrote = func(err error) { writes.WithLabelValues(result(err)).Inc() }
	f.report.Store(r)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	klog.InfoS("MultipathVolumes are written and followed", "node", f.name)
	return func() { f.report.Store(nil); cancel(); running.Wait() }, nil
}

// seen is a volume as a status has it.
func seen(volumes *volume.Node, id string) (health.Seen, bool) {
	s, is := volumes.Status(id)
	out := health.Seen{Generation: volumes.Generation(id)}
	for _, p := range s.Paths {
		out.Paths = append(out.Paths, health.Path{Portal: p.Portal, Up: p.Up, State: p.State, Cause: p.Cause})
	}
	return out, is
}

// refused says whether every path of a volume is down because its storage does not
// admit this node, or has the volume no more.
func refused(volumes *volume.Node, id string) bool {
	s, is := volumes.Status(id)
	if !is || len(s.Paths) == 0 || s.Lost != "" {
		return false
	}
	for _, p := range s.Paths {
		if p.Up || !strings.Contains(p.Cause, datapath.ErrDefinite.Error()) {
			return false
		}
	}
	return true
}

// pathChanged and happened tell the reports of what changed; neither blocks.
func (f *nodeFlags) pathChanged(id string, e datapath.Event) {
	r := f.report.Load()
	switch {
	case r == nil:
	case e.Kind == datapath.PathIdentityMismatch || e.Kind == datapath.CacheLost:
		r.Happened(id, string(e.Kind), e.Path+": "+e.Detail)
	default:
		r.Changed()
	}
}

func (f *nodeFlags) happened(e volume.Event) {
	if r := f.report.Load(); r != nil && e.Kind != volume.FilesystemMade {
		r.Happened(e.Volume, string(e.Kind), e.Message)
	}
}
