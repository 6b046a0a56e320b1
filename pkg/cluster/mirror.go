package cluster

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// mirror is the copy of one kind of objects.
type mirror struct {
	what     string
	informer cache.SharedIndexInformer
	// lost is since when the API server does not answer, in nanoseconds of Unix
	// time; 0: it does. The informer writes, all read; a moment more or less does not
	// matter.
	lost atomic.Int64
}

// newMirror lists and watches, and notices when that fails. That a connection is
// dead is found out by its HTTP/2 pings, within a minute.
func newMirror[L runtime.Object](what string, client kubernetes.Interface, kind runtime.Object,
	list func(context.Context, meta.ListOptions) (L, error), watching func(context.Context, meta.ListOptions) (watch.Interface, error), slim cache.TransformFunc) *mirror {
	m := &mirror{what: what}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o meta.ListOptions) (runtime.Object, error) {
			all, err := list(ctx, o)
			m.heard(err)
			return all, err
		},
		WatchFuncWithContext: func(ctx context.Context, o meta.ListOptions) (watch.Interface, error) {
			w, err := watching(ctx, o)
			m.heard(err)
			return w, err
		},
	}
	m.informer = cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, client), kind, 0, cache.Indexers{})
	if err := m.informer.SetTransform(slim); err != nil {
		panic(err) // only of an informer that runs
	}
	return m
}

// heard notes how the API server answered.
func (m *mirror) heard(err error) {
	if err == nil {
		m.lost.Store(0)
		return
	}
	m.lost.CompareAndSwap(0, time.Now().UnixNano())
}

// ready says why the copy cannot be believed, nil if it can.
func (m *mirror) ready() error {
	if !m.informer.HasSynced() {
		return fmt.Errorf("cluster: the %s are not known yet: try again; if this stays, see the controller's log and its RBAC rules", m.what)
	}
	lost := m.lost.Load()
	if lost == 0 {
		return nil
	}
	if since := time.Since(time.Unix(0, lost)); since > staleAfter {
		return fmt.Errorf("cluster: the API server has not told of %s for %v: try again when it does", m.what, since.Round(time.Second))
	}
	return nil
}

// The copies have only what is asked of them: a cluster may have thousands.

func slimNode(o any) (any, error) {
	if n, is := o.(*core.Node); is {
		return &core.Node{ObjectMeta: slimMeta(n.ObjectMeta)}, nil
	}
	return o, nil
}

func (c *Cluster) slimVolume(o any) (any, error) {
	pv, is := o.(*core.PersistentVolume)
	if !is {
		return o, nil
	}
	slim := &core.PersistentVolume{ObjectMeta: slimMeta(pv.ObjectMeta)}
	if c.ours(pv) {
		slim.Spec = core.PersistentVolumeSpec{Capacity: pv.Spec.Capacity, PersistentVolumeSource: pv.Spec.PersistentVolumeSource, ClaimRef: pv.Spec.ClaimRef}
	}
	return slim, nil
}

func (c *Cluster) slimAttachment(o any) (any, error) {
	a, is := o.(*storage.VolumeAttachment)
	if !is {
		return o, nil
	}
	slim := &storage.VolumeAttachment{ObjectMeta: slimMeta(a.ObjectMeta)}
	if a.Spec.Attacher == c.driver {
		slim.Spec, slim.Status.Attached = a.Spec, a.Status.Attached
	}
	return slim, nil
}

// slimMeta is what informers need.
func slimMeta(m meta.ObjectMeta) meta.ObjectMeta {
	return meta.ObjectMeta{Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
}

// ours says whether a volume is one of this driver.
func (c *Cluster) ours(pv *core.PersistentVolume) bool {
	return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == c.driver
}
