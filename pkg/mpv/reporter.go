package mpv

import (
	"context"
	"encoding/json"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-mpath/csi-mpath/pkg/api/v1alpha1"
	"github.com/csi-mpath/csi-mpath/pkg/health"
)

// Volumes are what a node has.
type Volumes struct {
	// List are the IDs of all, Seen is how one is; false: nobody serves it now.
	List func() []string
	Seen func(volume string) (health.Seen, bool)
	// Tune brings one up to a generation of tunables.
	Tune func(ctx context.Context, volume string, generation int64, tunables map[string]string) error
	// Revoke fails the I/O of one whose publication is over.
	Revoke func(ctx context.Context, volume, cause string) error
	// Refused says whether all paths of one are down because the storage does not
	// admit this node.
	Refused func(volume string) bool
}

// Reporter is a node's end: it writes the statuses of the node's MultipathVolumes,
// one a second at most, and follows their specs.
type Reporter struct {
	node    string
	client  dynamic.Interface
	volumes Volumes
	board   *health.Board
	own     cache.SharedIndexInformer
	kick    chan struct{}
	told    chan note
	refused map[string]time.Time // since when a volume without an object is refused
	had     map[string]bool      // volumes whose object this process saw
	Wrote   func(error)          // told of each write; may be nil
}

type note struct{ volume, reason, message string }

// NewReporter makes that of a node.
func NewReporter(client dynamic.Interface, node string, volumes Volumes) *Reporter {
	return &Reporter{node: node, client: client, volumes: volumes, board: health.NewBoard(), own: informer(client, NodeLabel+"="+label(node)),
		kick: make(chan struct{}, 1), told: make(chan note, maxTold), refused: map[string]time.Time{}, had: map[string]bool{}}
}

// Changed says that something is not as it was. It does not block.
func (r *Reporter) Changed() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// Happened notes something about a volume. It does not block: what comes too fast is
// in the log alone.
func (r *Reporter) Happened(volume, reason, message string) {
	select {
	case r.told <- note{volume, reason, message}:
	default:
	}
	r.Changed()
}

// Run reports until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	changes(r.own, func(*v1alpha1.MultipathVolume, bool) { r.Changed() })
	go r.own.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), r.own.HasSynced) {
		return
	}
	for ctx.Err() == nil {
		wait := r.round(ctx)
		next := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-next.C:
		case <-r.kick:
			pause(ctx, lookSoon)
		}
		next.Stop()
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// round looks at everything once, writes what is due, and says how long there is
// nothing to do.
func (r *Reporter) round(ctx context.Context) time.Duration {
	objects := r.objects()
	now := time.Now()
	for _, id := range r.volumes.List() {
		v := objects[id]
		if v == nil {
			r.orphan(ctx, now, id)
			continue
		}
		delete(r.refused, id)
		r.had[id] = true
		r.board.Known(id, v.Status)
		if seen, is := r.volumes.Seen(id); is {
			r.follow(ctx, v, &seen)
			r.board.Observe(now, id, seen)
		}
	}
	r.takeNotes(now)
	return r.write(ctx, objects)
}

// objects are this node's, by volume. A hash in a label may be another node's.
func (r *Reporter) objects() map[string]*v1alpha1.MultipathVolume {
	out := map[string]*v1alpha1.MultipathVolume{}
	for _, o := range r.own.GetStore().List() {
		if v, is := o.(*v1alpha1.MultipathVolume); is && v.Spec.Node == r.node {
			out[v.Spec.Volume] = v
		}
	}
	return out
}

// orphan is a volume without an object: nobody made it yet, or the publication is
// over. That an object which was there is gone proves nothing, that the storage refuses the node as
// well does: a node that comes back after it was given up cleans up (I9).
func (r *Reporter) orphan(ctx context.Context, now time.Time, id string) {
	r.board.Forget(id)
	if !r.had[id] || !r.volumes.Refused(id) {
		delete(r.refused, id)
		return
	}
	since, is := r.refused[id]
	if !is {
		r.refused[id] = now
		return
	}
	if now.Sub(since) < refusedFor {
		return
	}
	klog.InfoS("the storage refuses a volume that the cluster does not have here any more: its I/O fails", "volume", id)
	if err := r.volumes.Revoke(ctx, id, "its publication is over: the cluster has it here no more, and the storage refuses this node"); err != nil {
		klog.ErrorS(err, "not given up yet", "volume", id)
		return
	}
	delete(r.refused, id)
	delete(r.had, id)
}

// follow tunes a volume as its object says.
func (r *Reporter) follow(ctx context.Context, v *v1alpha1.MultipathVolume, seen *health.Seen) {
	if v.Spec.Generation <= seen.Generation {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	if err := r.volumes.Tune(ctx, v.Spec.Volume, v.Spec.Generation, v.Spec.Tunables); err != nil {
		klog.ErrorS(err, "not tuned", "volume", v.Spec.Volume, "generation", v.Spec.Generation)
		return
	}
	seen.Generation = v.Spec.Generation
}

func (r *Reporter) takeNotes(now time.Time) {
	for {
		select {
		case n := <-r.told:
			r.board.Note(now, n.volume, n.reason, n.message)
		default:
			return
		}
	}
}

// write writes what is due, one status, and says when the next one is.
func (r *Reporter) write(ctx context.Context, objects map[string]*v1alpha1.MultipathVolume) time.Duration {
	id, status, wait := r.board.Next(time.Now())
	switch {
	case status == nil && wait == 0:
		return lookEvery
	case status == nil:
		return min(wait, lookEvery)
	case objects[id] == nil:
		r.board.Forget(id)
		return 0
	}
	err := r.put(ctx, objects[id].Name, status)
	if r.Wrote != nil {
		r.Wrote(err)
	}
	if err != nil {
		klog.ErrorS(err, "a status is not written: it is written again later", "volume", id)
		r.board.Failed(time.Now(), id)
	}
	return lookSoon
}

func (r *Reporter) put(ctx context.Context, name string, status *v1alpha1.MultipathVolumeStatus) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	b, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = r.client.Resource(v1alpha1.Resource).Patch(ctx, name, types.MergePatchType, b, meta.PatchOptions{}, "status")
	return err
}
