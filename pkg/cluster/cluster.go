// Package cluster keeps a read-only copy of what the controller has to know of its
// Kubernetes cluster: which nodes there are, and which volumes are attached to them.
//
// A copy may lack what was made a moment ago, so what it has is believed, and what
// it lacks is asked for. A copy that is not complete yet, or that nobody refreshes
// any more, is an error: what is missing in a list would be taken for gone.
package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Cluster is the copy. Its methods may be called from several goroutines.
type Cluster struct {
	client                      kubernetes.Interface
	driver                      string
	nodes, volumes, attachments *mirror
}

// Volume is one that nodes have attached.
type Volume struct {
	Handle     string
	Attributes map[string]string // the PersistentVolume's; not to be written to
	Size       int64             // bytes
	Nodes      []string          // sorted
}

// New makes the copy of what concerns a driver. It is empty, and says so, until
// Run has filled it.
func New(client kubernetes.Interface, driver string) *Cluster {
	c := &Cluster{client: client, driver: driver}
	nodes, volumes, attachments := client.CoreV1().Nodes(), client.CoreV1().PersistentVolumes(), client.StorageV1().VolumeAttachments()
	c.nodes = newMirror("nodes", client, &core.Node{}, nodes.List, nodes.Watch, slimNode)
	c.volumes = newMirror("persistent volumes", client, &core.PersistentVolume{}, volumes.List, volumes.Watch, c.slimVolume)
	if err := c.volumes.informer.AddIndexers(cache.Indexers{byHandle: c.handles}); err != nil {
		panic(err) // only of an informer that runs
	}
	c.attachments = newMirror("volume attachments", client, &storage.VolumeAttachment{}, attachments.List, attachments.Watch, c.slimAttachment)
	return c
}

// Run keeps the copy up to date until ctx ends. An API server that does not answer
// is asked again for ever.
func (c *Cluster) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, m := range []*mirror{c.nodes, c.volumes, c.attachments} {
		all.Go(func() { m.informer.RunWithContext(ctx) })
	}
	all.Wait()
}

// HasNode reports whether the cluster has a node. An error says that nobody knows.
func (c *Cluster) HasNode(ctx context.Context, name string) (bool, error) {
	n, err := find(ctx, c.nodes, name, c.client.CoreV1().Nodes().Get)
	return n != nil, err
}

// Attached are this driver's volumes that VolumeAttachments say are attached, in
// the order of their handles. A volume without its PersistentVolume, which somebody
// must have removed by force, has no handle, and is left out: whoever compares
// attachments with the list cannot find its handle either.
func (c *Cluster) Attached(ctx context.Context) ([]Volume, error) {
	if err := c.attachments.ready(); err != nil {
		return nil, err
	}
	all := map[string]*Volume{}
	for _, o := range c.attachments.informer.GetStore().List() {
		a, is := o.(*storage.VolumeAttachment)
		if !is || a.Spec.Attacher != c.driver || !a.Status.Attached || a.Spec.Source.PersistentVolumeName == nil {
			continue
		}
		pv, err := find(ctx, c.volumes, *a.Spec.Source.PersistentVolumeName, c.client.CoreV1().PersistentVolumes().Get)
		if err != nil {
			return nil, err
		}
		if pv != nil && c.ours(pv) {
			add(all, pv, a.Spec.NodeName)
		}
	}
	return sorted(all), nil
}

// byHandle is the index of volumes by their handles.
const byHandle = "handle"

func (c *Cluster) handles(o any) ([]string, error) {
	if pv, is := o.(*core.PersistentVolume); is && c.ours(pv) {
		return []string{pv.Spec.CSI.VolumeHandle}, nil
	}
	return nil, nil
}

// Persistent is the PersistentVolume of a handle, with its claim, as the copy has it;
// nil if it has none, which may be because it is behind. Not to be written to.
func (c *Cluster) Persistent(handle string) *core.PersistentVolume {
	all, err := c.volumes.informer.GetIndexer().ByIndex(byHandle, handle)
	if err != nil || len(all) == 0 {
		return nil
	}
	pv, _ := all[0].(*core.PersistentVolume)
	return pv
}

// add notes that a node has a volume. Several PersistentVolumes may be one volume.
func add(all map[string]*Volume, pv *core.PersistentVolume, node string) {
	v := all[pv.Spec.CSI.VolumeHandle]
	if v == nil {
		size := pv.Spec.Capacity[core.ResourceStorage]
		v = &Volume{Handle: pv.Spec.CSI.VolumeHandle, Attributes: pv.Spec.CSI.VolumeAttributes, Size: size.Value()}
		all[v.Handle] = v
	}
	v.Nodes = append(v.Nodes, node)
}

func sorted(all map[string]*Volume) []Volume {
	out := make([]Volume, 0, len(all))
	for _, v := range all {
		slices.Sort(v.Nodes)
		v.Nodes = slices.Compact(v.Nodes)
		out = append(out, *v)
	}
	slices.SortFunc(out, func(a, b Volume) int { return strings.Compare(a.Handle, b.Handle) })
	return out
}

// find is an object of the copy, or else of the cluster; nil if there is none.
func find[T any](ctx context.Context, m *mirror, name string, get func(context.Context, string, meta.GetOptions) (*T, error)) (*T, error) {
	if err := m.ready(); err != nil {
		return nil, err
	}
	o, _, err := m.informer.GetStore().GetByKey(name)
	if t, is := o.(*T); is && err == nil {
		return t, nil
	}
	t, err := get(ctx, name, meta.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cluster: %s: %w", m.what, err)
	}
	return t, nil
}
