package mpv

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/csi-mpath/csi-mpath/pkg/api/v1alpha1"
)

// Keeper writes the specs of MultipathVolumes for the controller. Its calls return at
// once, and are done in the background, repeated while they fail.
type Keeper struct {
	client dynamic.Interface
	owner  func(volume string) *meta.OwnerReference
	queue  workqueue.TypedRateLimitingInterface[Key]

	mu sync.Mutex // guards wanted
	// wanted is what is to be written of a key; a nil spec is an object that is to go.
	// A key without a node stands for all objects of its volume.
	wanted map[Key]*v1alpha1.MultipathVolumeSpec
}

// NewKeeper makes one. owner is the PersistentVolume that objects of a volume go with;
// nil if it is not known.
func NewKeeper(client dynamic.Interface, owner func(volume string) *meta.OwnerReference) *Keeper {
	limit := workqueue.NewTypedItemExponentialFailureRateLimiter[Key](100*time.Millisecond, 30*time.Second)
	return &Keeper{client: client, owner: owner, queue: workqueue.NewTypedRateLimitingQueue(limit), wanted: map[Key]*v1alpha1.MultipathVolumeSpec{}}
}

// Published says that a node has a volume, and how.
func (k *Keeper) Published(spec v1alpha1.MultipathVolumeSpec) {
	k.want(Key{spec.Volume, spec.Node}, &spec)
}

// Unpublished says that a node has it no more; an empty node stands for all.
func (k *Keeper) Unpublished(volume, node string) { k.want(Key{volume, node}, nil) }

// Tuned says what a volume is tuned with, wherever it is.
func (k *Keeper) Tuned(volume string, generation int64, tunables map[string]string) {
	k.want(Key{Volume: volume}, &v1alpha1.MultipathVolumeSpec{Volume: volume, Generation: generation, Tunables: maps.Clone(tunables)})
}

func (k *Keeper) want(key Key, spec *v1alpha1.MultipathVolumeSpec) {
	k.mu.Lock()
	k.wanted[key] = spec
	k.mu.Unlock()
	k.queue.Forget(key)
	k.queue.Add(key)
}

// Run writes until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, k.queue.ShutDown)
	defer stop()
	for {
		key, end := k.queue.Get()
		if end {
			return
		}
		k.next(ctx, key)
		k.queue.Done(key)
	}
}

// next writes one, and drops it when it is written or failed too often.
func (k *Keeper) next(ctx context.Context, key Key) {
	k.mu.Lock()
	spec, is := k.wanted[key]
	k.mu.Unlock()
	if !is {
		return
	}
	err := k.write(ctx, key, spec)
	if err != nil && k.queue.NumRequeues(key) < retries && ctx.Err() == nil {
		k.queue.AddRateLimited(key)
		return
	}
	if err != nil {
		klog.ErrorS(err, "a MultipathVolume is not written: people do not see the volume, it works all the same", "volume", key.Volume, "node", key.Node)
	}
	k.queue.Forget(key)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.wanted[key] == spec {
		delete(k.wanted, key)
	}
}

func (k *Keeper) write(ctx context.Context, key Key, spec *v1alpha1.MultipathVolumeSpec) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	all := k.client.Resource(v1alpha1.Resource)
	switch {
	case key.Node == "":
		return k.writeAll(ctx, key.Volume, spec)
	case spec == nil:
		err := all.Delete(ctx, key.Name(), meta.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	o, err := object(key, *spec, k.owner(key.Volume))
	if err != nil {
		return err
	}
	_, err = all.Create(ctx, o, meta.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return k.patch(ctx, key, spec)
	}
	return err
}

// writeAll does it to all objects of a volume.
func (k *Keeper) writeAll(ctx context.Context, volume string, spec *v1alpha1.MultipathVolumeSpec) error {
	list, err := k.client.Resource(v1alpha1.Resource).List(ctx, meta.ListOptions{LabelSelector: VolumeLabel + "=" + label(volume)})
	if err != nil {
		return err
	}
	for i := range list.Items {
		o, err := slim(&list.Items[i])
		v, is := o.(*v1alpha1.MultipathVolume)
		if err != nil || !is || v.Spec.Volume != volume {
			continue
		}
		key := Key{volume, v.Spec.Node}
		if spec == nil {
			err = k.write(ctx, key, nil)
		} else if spec.Generation > v.Spec.Generation {
			err = k.patch(ctx, key, spec)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// patch changes what is given of an object that is there: absent portals stay.
func (k *Keeper) patch(ctx context.Context, key Key, spec *v1alpha1.MultipathVolumeSpec) error {
	change := map[string]any{"generation": spec.Generation, "tunables": spec.Tunables}
	if len(spec.Portals) > 0 {
		change["portals"] = slices.Clone(spec.Portals)
	}
	b, err := json.Marshal(map[string]any{"spec": change})
	if err != nil {
		return err
	}
	_, err = k.client.Resource(v1alpha1.Resource).Patch(ctx, key.Name(), types.MergePatchType, b, meta.PatchOptions{})
	return err
}
