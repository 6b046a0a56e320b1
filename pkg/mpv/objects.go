// Package mpv keeps the MultipathVolumes of a cluster: the controller makes them
// (Keeper) and turns what they say into Events (Teller), and each node writes the
// statuses of its own and follows what they are tuned with (Reporter).
//
// Nobody waits for it: without the CRD, or without an API server, volumes work, and
// what was missed is made up for later.
package mpv

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-mpath/csi-mpath/pkg/api/v1alpha1"
)

// The labels by which MultipathVolumes are found.
const (
	NodeLabel   = "csi-mpath.io/node"
	VolumeLabel = "csi-mpath.io/volume"
)

// Key is one volume on one node.
type Key struct{ Volume, Node string }

// Name is the object's name: that of the volume for people, and a hash that makes it
// unique.
func (k Key) Name() string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		}
		return '-'
	}, strings.ToLower(k.Volume))
	return strings.Trim(clean[:min(len(clean), maxNamePart)], "-") + "-" + short(k.Volume+"\x00"+k.Node)
}

// label is a value for a label: the text itself if it may be one.
func label(s string) string {
	plain := len(s) <= maxLabel && s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
	}) && !strings.ContainsAny(s[:1]+s[len(s)-1:], "-._")
	if plain {
		return s
	}
	return "h-" + short(s)
}

func short(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// object is a MultipathVolume as it is created.
func object(k Key, spec v1alpha1.MultipathVolumeSpec, owner *meta.OwnerReference) (*unstructured.Unstructured, error) {
	v := &v1alpha1.MultipathVolume{
		TypeMeta:   meta.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "MultipathVolume"},
		ObjectMeta: meta.ObjectMeta{Name: k.Name(), Labels: map[string]string{NodeLabel: label(k.Node), VolumeLabel: label(k.Volume)}},
		Spec:       spec,
	}
	if owner != nil {
		v.OwnerReferences = []meta.OwnerReference{*owner}
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(v)
	return &unstructured.Unstructured{Object: m}, err
}

// slim is what an informer keeps of an object.
func slim(o any) (any, error) {
	u, is := o.(*unstructured.Unstructured)
	if !is {
		return o, nil
	}
	v := &v1alpha1.MultipathVolume{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, v); err != nil {
		return nil, fmt.Errorf("MultipathVolume %s: %w", u.GetName(), err)
	}
	v.ManagedFields, v.TypeMeta = nil, meta.TypeMeta{}
	return v, nil
}

// informer watches MultipathVolumes, those with a label or all.
func informer(client dynamic.Interface, selector string) cache.SharedIndexInformer {
	all := client.Resource(v1alpha1.Resource)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o meta.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			return all.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o meta.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return all.Watch(ctx, o)
		},
	}
	i := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, client), &unstructured.Unstructured{}, 0, nil)
	if err := i.SetTransform(slim); err != nil {
		panic(err) // only of an informer that runs
	}
	return i
}

// changes calls f with each object that an informer learns of; gone says that it was
// deleted.
func changes(i cache.SharedIndexInformer, f func(v *v1alpha1.MultipathVolume, gone bool)) {
	_, _ = i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { call(f, o, false) },
		UpdateFunc: func(_, o any) { call(f, o, false) },
		DeleteFunc: func(o any) {
			if last, is := o.(cache.DeletedFinalStateUnknown); is {
				o = last.Obj
			}
			call(f, o, true)
		},
	})
}

func call(f func(*v1alpha1.MultipathVolume, bool), o any, gone bool) {
	if v, is := o.(*v1alpha1.MultipathVolume); is {
		f(v, gone)
	}
}
