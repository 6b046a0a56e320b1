package cluster

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// NotReadyTaint is put on new nodes by whoever makes them, so that no pod with volumes
// lands there before the driver does.
const NotReadyTaint = "csi-mpath.io/not-ready"

// RemoveTaints removes NotReadyTaint from nodes on which the kubelet knows the driver,
// until ctx ends. Several may run at once.
func RemoveTaints(ctx context.Context, client kubernetes.Interface, driver string) {
	for ctx.Err() == nil {
		if err := untaint(ctx, client, driver); err != nil {
			klog.ErrorS(err, "taints of nodes that are ready stay for now", "taint", NotReadyTaint)
		}
		select {
		case <-ctx.Done():
		case <-time.After(taintsEvery):
		}
	}
}

// untaint looks at all nodes once. What the API server has in its cache will do.
func untaint(ctx context.Context, client kubernetes.Interface, driver string) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	all, err := client.CoreV1().Nodes().List(ctx, meta.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	for i := range all.Items {
		n := &all.Items[i]
		if !slices.ContainsFunc(n.Spec.Taints, isNotReady) {
			continue
		}
		has, err := registered(ctx, client, n.Name, driver)
		if err == nil && has {
			err = removeTaint(ctx, client, n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func isNotReady(t core.Taint) bool { return t.Key == NotReadyTaint }

func registered(ctx context.Context, client kubernetes.Interface, node, driver string) (bool, error) {
	n, err := client.StorageV1().CSINodes().Get(ctx, node, meta.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, d := range n.Spec.Drivers {
		if d.Name == driver {
			return true, nil
		}
	}
	return false, nil
}

// removeTaint fails if somebody else changed the node meanwhile: its other taints are
// in the patch.
func removeTaint(ctx context.Context, client kubernetes.Interface, n *core.Node) error {
	left := slices.DeleteFunc(slices.Clone(n.Spec.Taints), isNotReady)
	b, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": n.ResourceVersion}, "spec": map[string]any{"taints": left}})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, b, meta.PatchOptions{})
	if err == nil {
		klog.InfoS("the node has the driver: its taint is removed", "node", n.Name, "taint", NotReadyTaint)
	}
	return err
}
