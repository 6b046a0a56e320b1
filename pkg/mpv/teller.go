package mpv

import (
	"context"
	"fmt"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	events "k8s.io/api/events/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/csi-mpath/csi-mpath/pkg/api/v1alpha1"
	"github.com/csi-mpath/csi-mpath/pkg/health"
)

// LeaseName is that of the Lease of the one controller that makes Events.
const LeaseName = "csi-mpath-events"

// Teller makes Events of what MultipathVolumes say.
type Teller struct {
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	// Persistent is the PersistentVolume of a volume, with its claim; nil: it is not
	// known.
	Persistent func(volume string) *core.PersistentVolume
	// Attached are the volumes that the cluster says nodes have; nil: nothing is swept.
	Attached func(ctx context.Context) (map[Key]bool, error)
	// Namespace and Name are those of this process's pod.
	Namespace, Name string
	// Told counts Events by reason; it may be nil.
	Told func(reason string, err error)

	mu    sync.Mutex // guards story
	story *health.Narrator
	kick  chan struct{}
}

// Run takes part in the election, and tells while it is elected, until ctx ends.
func (t *Teller) Run(ctx context.Context) {
	lock := &resourcelock.LeaseLock{LeaseMeta: meta.ObjectMeta{Namespace: t.Namespace, Name: LeaseName},
		Client: t.Client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: t.Name}}
	for ctx.Err() == nil {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{Lock: lock, Name: LeaseName, ReleaseOnCancel: true,
			LeaseDuration: leaseTime, RenewDeadline: leaseTime * 2 / 3, RetryPeriod: leaseTime / 6,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: t.lead, OnStoppedLeading: func() { klog.Info("another controller makes the Events now") }}})
	}
}

// lead tells until ctx ends.
func (t *Teller) lead(ctx context.Context) {
	t.mu.Lock()
	t.story, t.kick = health.NewNarrator(), make(chan struct{}, 1)
	t.mu.Unlock()
	all := informer(t.Dynamic, "")
	changes(all, t.observe)
	var parts sync.WaitGroup
	parts.Go(func() { all.RunWithContext(ctx) })
	parts.Go(func() { t.sweep(ctx, all) })
	t.tell(ctx)
	parts.Wait()
}

func (t *Teller) observe(v *v1alpha1.MultipathVolume, gone bool) {
	of := health.Subject{Node: v.Spec.Node, Volume: v.Spec.Volume}
	t.mu.Lock()
	if gone {
		t.story.Forget(time.Now(), of)
	} else {
		t.story.Observe(time.Now(), of, v.Status)
	}
	t.mu.Unlock()
	select {
	case t.kick <- struct{}{}:
	default:
	}
}

// tell makes the Events that are due, until ctx ends.
func (t *Teller) tell(ctx context.Context) {
	for ctx.Err() == nil {
		t.mu.Lock()
		due, again, ever := t.story.Due(time.Now())
		t.mu.Unlock()
		for _, e := range due {
			err := t.emit(ctx, e)
			if err != nil {
				klog.ErrorS(err, "an Event is lost", "node", e.Node, "volume", e.Volume, "reason", e.Reason, "note", e.Note)
			}
			if t.Told != nil {
				t.Told(e.Reason, err)
			}
		}
		wait := time.Hour
		if ever {
			wait = time.Until(again)
		}
		next := time.NewTimer(max(wait, tellSoon))
		select {
		case <-ctx.Done():
		case <-next.C:
		case <-t.kick:
			pause(ctx, tellSoon) // many objects change at once
		}
		next.Stop()
	}
}

// emit makes one Event about each object that people look at.
func (t *Teller) emit(ctx context.Context, e health.Event) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	node := core.ObjectReference{APIVersion: "v1", Kind: "Node", Name: e.Node, UID: types.UID(e.Node)} // the UID that kubectl describe looks for
	if e.Volume == "" {
		return t.create(ctx, e, node, nil)
	}
	pv := t.Persistent(e.Volume)
	if pv == nil || pv.Spec.ClaimRef == nil {
		e.Note = fmt.Sprintf("volume %s: %s", e.Volume, e.Note)
		return t.create(ctx, e, node, nil)
	}
	claim := *pv.Spec.ClaimRef
	claim.APIVersion, claim.Kind = "v1", "PersistentVolumeClaim"
	e.Note = fmt.Sprintf("on node %s: %s", e.Node, e.Note)
	if err := t.create(ctx, e, claim, &node); err != nil {
		return err
	}
	pods, err := t.users(ctx, claim, e.Node)
	for _, p := range pods {
		if err == nil {
			err = t.create(ctx, e, p, &claim)
		}
	}
	return err
}

// users are the pods of a claim on a node.
func (t *Teller) users(ctx context.Context, claim core.ObjectReference, node string) (out []core.ObjectReference, err error) {
	pods, err := t.Client.CoreV1().Pods(claim.Namespace).List(ctx, meta.ListOptions{FieldSelector: "spec.nodeName=" + node, ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Spec.NodeName == node && uses(p, claim.Name) {
			out = append(out, core.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID})
		}
	}
	return out[:min(len(out), maxUsers)], nil
}

func uses(p *core.Pod, claim string) bool {
	for _, v := range p.Spec.Volumes {
		if c := v.PersistentVolumeClaim; c != nil && c.ClaimName == claim {
			return true
		}
		if v.Ephemeral != nil && p.Name+"-"+v.Name == claim {
			return true
		}
	}
	return false
}

func (t *Teller) create(ctx context.Context, e health.Event, about core.ObjectReference, related *core.ObjectReference) error {
	kind := core.EventTypeNormal
	if e.Warning {
		kind = core.EventTypeWarning
	}
	ns := about.Namespace
	if ns == "" {
		ns = meta.NamespaceDefault
	}
	at := meta.NowMicro()
	name := "csi-mpath-" + short(fmt.Sprint(about.Kind, about.Namespace, "/", about.Name, e.Reason, at.UnixNano()))
	made := &events.Event{ObjectMeta: meta.ObjectMeta{Namespace: ns, Name: name}, EventTime: at,
		ReportingController: "csi-mpath.io/controller", ReportingInstance: t.Name, Action: "Watching", Reason: e.Reason, Type: kind,
		Note: e.Note[:min(len(e.Note), maxNote)], Regarding: about, Related: related}
	_, err := t.Client.EventsV1().Events(ns).Create(ctx, made, meta.CreateOptions{})
	return err
}

// sweep removes objects that nobody has a volume for, which a controller that was
// killed may have left.
func (t *Teller) sweep(ctx context.Context, all cache.SharedIndexInformer) {
	for t.Attached != nil {
		pause(ctx, sweepEvery)
		if ctx.Err() != nil {
			return
		}
		attached, err := t.Attached(ctx)
		if err != nil || !all.HasSynced() {
			continue
		}
		for _, o := range all.GetStore().List() {
			v, is := o.(*v1alpha1.MultipathVolume)
			if !is || attached[Key{v.Spec.Volume, v.Spec.Node}] || time.Since(v.CreationTimestamp.Time) < graceTime {
				continue
			}
			t.remove(ctx, v)
		}
	}
}

// remove deletes one that is still what was seen.
func (t *Teller) remove(ctx context.Context, v *v1alpha1.MultipathVolume) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	err := t.Dynamic.Resource(v1alpha1.Resource).Delete(ctx, v.Name, meta.DeleteOptions{Preconditions: &meta.Preconditions{UID: &v.UID}})
	klog.InfoS("a MultipathVolume without an attachment is removed", "name", v.Name, "volume", v.Spec.Volume, "node", v.Spec.Node, "error", err)
}
