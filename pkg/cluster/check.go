package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Installation says what is to be there of a driver in a cluster.
type Installation struct {
	Driver    string
	Namespace string
	// Controller is a Deployment's name, Node a DaemonSet's.
	Controller, Node string
}

// Check looks whether everything is there that a volume needs, and says each thing
// that is; an error says all that is not, and the way out.
func (i Installation) Check(ctx context.Context, client kubernetes.Interface) (good []string, err error) {
	for _, look := range []func(context.Context, kubernetes.Interface) (string, error){i.checkDriver, i.checkController, i.checkNodes, i.checkRegistered, i.checkClasses} {
		text, e := look(ctx, client)
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		good = append(good, text)
	}
	return good, err
}

func (i Installation) checkDriver(ctx context.Context, client kubernetes.Interface) (string, error) {
	if _, err := client.StorageV1().CSIDrivers().Get(ctx, i.Driver, meta.GetOptions{}); err != nil {
		return "", fmt.Errorf("CSIDriver %s: %w", i.Driver, err)
	}
	return "the CSIDriver " + i.Driver + " is there", nil
}

func (i Installation) checkController(ctx context.Context, client kubernetes.Interface) (string, error) {
	d, err := client.AppsV1().Deployments(i.Namespace).Get(ctx, i.Controller, meta.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("controller: %w", err)
	}
	if d.Status.AvailableReplicas == 0 {
		return "", fmt.Errorf("no pod of Deployment %s is available: kubectl -n %s describe pod -l app.kubernetes.io/component=controller", i.Controller, i.Namespace)
	}
	return fmt.Sprintf("%d of %d controllers are available", d.Status.AvailableReplicas, d.Status.Replicas), nil
}

func (i Installation) checkNodes(ctx context.Context, client kubernetes.Interface) (string, error) {
	d, err := client.AppsV1().DaemonSets(i.Namespace).Get(ctx, i.Node, meta.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("node plugin: %w", err)
	}
	s := d.Status
	if s.DesiredNumberScheduled == 0 || s.NumberAvailable < s.DesiredNumberScheduled {
		return "", fmt.Errorf("%d of %d node plugins are available: kubectl -n %s logs ds/%s shows why; usually the kernel module nbd is missing (docs/nbd-module.md)",
			s.NumberAvailable, s.DesiredNumberScheduled, i.Namespace, i.Node)
	}
	return fmt.Sprintf("%d of %d node plugins are available", s.NumberAvailable, s.DesiredNumberScheduled), nil
}

// checkRegistered compares the nodes that have a plugin's pod with those whose
// kubelet knows the driver.
func (i Installation) checkRegistered(ctx context.Context, client kubernetes.Interface) (string, error) {
	d, err := client.AppsV1().DaemonSets(i.Namespace).Get(ctx, i.Node, meta.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("node plugin: %w", err)
	}
	selector, err := meta.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return "", fmt.Errorf("DaemonSet %s: %w", i.Node, err)
	}
	pods, err := client.CoreV1().Pods(i.Namespace).List(ctx, meta.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return "", fmt.Errorf("pods of the node plugin: %w", err)
	}
	known, err := i.registered(ctx, client)
	if err != nil {
		return "", err
	}
	missing := missingNodes(pods.Items, known)
	if len(missing) > 0 {
		return "", fmt.Errorf("the kubelet does not know the driver on %s: kubectl -n %s logs of the plugin's pod there; is node.kubeletDir the kubelet's --root-dir?", strings.Join(missing, ", "), i.Namespace)
	}
	return fmt.Sprintf("the kubelets of %d nodes know the driver", len(known)), nil
}

// registered are the nodes whose kubelet knows the driver.
func (i Installation) registered(ctx context.Context, client kubernetes.Interface) (map[string]bool, error) {
	all, err := client.StorageV1().CSINodes().List(ctx, meta.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list of CSINodes: %w", err)
	}
	known := map[string]bool{}
	for _, n := range all.Items {
		for _, d := range n.Spec.Drivers {
			if d.Name == i.Driver {
				known[n.Name] = true
			}
		}
	}
	return known, nil
}

func missingNodes(pods []core.Pod, known map[string]bool) (missing []string) {
	for _, p := range pods {
		if node := p.Spec.NodeName; node != "" && !known[node] {
			missing = append(missing, node)
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}

func (i Installation) checkClasses(ctx context.Context, client kubernetes.Interface) (string, error) {
	all, err := client.StorageV1().StorageClasses().List(ctx, meta.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list of StorageClasses: %w", err)
	}
	var names []string
	for _, c := range all.Items {
		if c.Provisioner == i.Driver {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return "no StorageClass uses the driver: static volumes only", nil
	}
	return "StorageClasses: " + strings.Join(names, ", "), nil
}
