package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Try calls kubectl as the cluster's administrator.
func (l *Lab) Try(args ...string) (string, error) {
	return l.run(l.bin("kubectl"), append([]string{"--kubeconfig=" + l.path("admin.kubeconfig")}, args...)...)
}

// Kubectl is Try that has to succeed.
func (l *Lab) Kubectl(args ...string) string {
	l.t.Helper()
	out, err := l.Try(args...)
	l.must(err)
	return out
}

// Show keeps what kubectl prints in a file, for people to read.
func (l *Lab) Show(file string, args ...string) string {
	l.t.Helper()
	out := l.Kubectl(args...)
	at := filepath.Join(l.Out, file)
	f, err := os.OpenFile(at, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	l.must(err)
	_, err = fmt.Fprintf(f, "$ kubectl %s\n%s\n", strings.Join(args, " "), out)
	l.must(err)
	l.must(f.Close())
	return out
}

// Apply makes the objects that a text describes.
func (l *Lab) Apply(text string) {
	l.t.Helper()
	l.must(os.WriteFile(l.path("apply.yaml"), []byte(text), 0o600))
	l.Kubectl("apply", "-f", l.path("apply.yaml"))
}

// Helm calls helm.
func (l *Lab) Helm(args ...string) (string, error) {
	return l.run(l.bin("helm"), append([]string{"--kubeconfig=" + l.path("admin.kubeconfig")}, args...)...)
}

// Kinds that the tests look at.
var (
	Pods        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	Claims      = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
	Volumes     = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}
	Attachments = schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "volumeattachments"}
	Snapshots   = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}
	Multipath   = schema.GroupVersionResource{Group: "csi-mpath.io", Version: "v1alpha1", Resource: "multipathvolumes"}
)

// Object reads one of namespace default, or of none.
func (l *Lab) Object(kind schema.GroupVersionResource, name string) (*unstructured.Unstructured, error) {
	ctx := context.WithoutCancel(l.t.Context())
	switch kind {
	case Volumes, Attachments, Multipath:
		return l.Dynamic.Resource(kind).Get(ctx, name, metav1.GetOptions{})
	default:
		return l.Dynamic.Resource(kind).Namespace("default").Get(ctx, name, metav1.GetOptions{})
	}
}

// All lists every object of a kind.
func (l *Lab) All(kind schema.GroupVersionResource) ([]unstructured.Unstructured, error) {
	got, err := l.Dynamic.Resource(kind).List(context.WithoutCancel(l.t.Context()), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return got.Items, nil
}

// Has waits until a field of an object has a value.
func (l *Lab) Has(kind schema.GroupVersionResource, name string, limit time.Duration, want string, field ...string) {
	l.t.Helper()
	l.Until(fmt.Sprintf("%s %s: %s to be %s", kind.Resource, name, strings.Join(field, "."), want), limit, func() error {
		o, err := l.Object(kind, name)
		if err != nil {
			return err
		}
		v, _, err := unstructured.NestedFieldNoCopy(o.Object, field...)
		if err == nil && fmt.Sprint(v) != want {
			err = fmt.Errorf("it is %v; status %v", v, o.Object["status"])
		}
		return err
	})
}

// None waits until there is no object of a kind.
func (l *Lab) None(kind schema.GroupVersionResource, limit time.Duration) {
	l.t.Helper()
	l.Until("the end of all "+kind.Resource, limit, func() error {
		all, err := l.All(kind)
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("%d are left, the first is %s", len(all), all[0].GetName())
		}
		return err
	})
}

// leave writes what helps to find out why a test failed.
func (l *Lab) leave() {
	dir := filepath.Join(l.Out, "failed")
	_ = os.RemoveAll(dir)
	_ = os.MkdirAll(dir, 0o755)
	for name, args := range map[string][]string{
		"events": {"get", "events", "-A", "--sort-by=.lastTimestamp"}, "pods": {"describe", "pods", "-A"}, "nodes": {"describe", "nodes"},
		"objects":    {"get", "pvc,pv,volumeattachments,mpv,csinodes,volumesnapshots,volumesnapshotcontents", "-A", "-o", "yaml"},
		"controller": {"logs", "-n", "csi-mpath", "-l", "app.kubernetes.io/component=controller", "--all-containers", "--prefix", "--tail=-1"},
		"node":       {"logs", "-n", "csi-mpath", "-l", "app.kubernetes.io/component=node", "--all-containers", "--prefix", "--tail=-1"},
	} {
		out, err := l.Try(args...)
		if err != nil {
			out += err.Error()
		}
		_ = os.WriteFile(filepath.Join(dir, name+".txt"), []byte(out), 0o644)
	}
	logs, _ := filepath.Glob(l.path("*.log"))
	for _, n := range l.Nodes {
		logs = append(logs, n.path("containerd.log"))
	}
	for _, log := range logs {
		b, _ := os.ReadFile(log)
		_ = os.WriteFile(filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(log, l.Dir+"/"), "/", "-")), b, 0o644)
	}
	l.t.Logf("logs and objects: %s", dir)
}

// Snapshotter gives the cluster what a distribution would have: the snapshot CRDs and
// their controller.
func (l *Lab) Snapshotter() {
	l.t.Helper()
	for _, kind := range []string{"volumesnapshotclasses", "volumesnapshotcontents", "volumesnapshots"} {
		l.Kubectl("apply", "-f", l.bin("crd/snapshot.storage.k8s.io_"+kind+".yaml"))
	}
	l.Kubectl("wait", "--for=condition=Established", "--timeout=1m", "crd/volumesnapshots.snapshot.storage.k8s.io")
	l.daemon("snapshot-controller", l.bin("snapshot-controller"), "--kubeconfig="+l.path("admin.kubeconfig"))
}
