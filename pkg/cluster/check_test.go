package cluster

import (
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
)

const itself = "csi-mpath.io"

func volumeOn(name, driver, pv, node string) *storage.VolumeAttachment {
	a := &storage.VolumeAttachment{ObjectMeta: meta.ObjectMeta{Name: name}, Spec: storage.VolumeAttachmentSpec{Attacher: driver, NodeName: node}}
	if pv != "" {
		a.Spec.Source.PersistentVolumeName = &pv
	}
	return a
}

func TestWhatIsAttachedOfOneDriverIsInUse(t *testing.T) {
	client := fake.NewClientset(volumeOn("a2", itself, "pv-2", "n1"), volumeOn("a1", itself, "pv-1", "n2"), volumeOn("a3", "other.io", "pv-3", "n1"), volumeOn("a4", itself, "", "n3"))
	got, err := InUse(t.Context(), client, itself)
	if want := "a4 on n3; pv-1 on n2; pv-2 on n1"; err != nil || strings.Join(got, "; ") != want {
		t.Fatal(got, err)
	}
}

func TestNothingAttachedIsNotInUse(t *testing.T) {
	got, err := InUse(t.Context(), fake.NewClientset(volumeOn("a3", "other.io", "pv-3", "n1")), itself)
	if err != nil || len(got) != 0 {
		t.Fatal(got, err)
	}
}

// installed is a cluster in which a driver is, with two nodes.
func installed() []runtime.Object {
	labels := map[string]string{"part": "node"}
	pod := func(name, node string) *core.Pod {
		return &core.Pod{ObjectMeta: meta.ObjectMeta{Name: name, Namespace: "ns", Labels: labels}, Spec: core.PodSpec{NodeName: node}}
	}
	csiNode := func(name string) *storage.CSINode {
		return &storage.CSINode{ObjectMeta: meta.ObjectMeta{Name: name}, Spec: storage.CSINodeSpec{Drivers: []storage.CSINodeDriver{{Name: itself, NodeID: name}}}}
	}
	return []runtime.Object{
		&storage.CSIDriver{ObjectMeta: meta.ObjectMeta{Name: itself}},
		&apps.Deployment{ObjectMeta: meta.ObjectMeta{Name: "c", Namespace: "ns"}, Status: apps.DeploymentStatus{Replicas: 2, AvailableReplicas: 1}},
		&apps.DaemonSet{ObjectMeta: meta.ObjectMeta{Name: "n", Namespace: "ns"}, Spec: apps.DaemonSetSpec{Selector: &meta.LabelSelector{MatchLabels: labels}},
			Status: apps.DaemonSetStatus{DesiredNumberScheduled: 2, NumberAvailable: 2}},
		pod("p1", "n1"), pod("p2", "n2"), csiNode("n1"), csiNode("n2"),
		&storage.StorageClass{ObjectMeta: meta.ObjectMeta{Name: "fast"}, Provisioner: itself},
	}
}

func check(t *testing.T, objects []runtime.Object) ([]string, error) {
	t.Helper()
	return Installation{Driver: itself, Namespace: "ns", Controller: "c", Node: "n"}.Check(t.Context(), fake.NewClientset(objects...))
}

func TestAWholeInstallationIsGood(t *testing.T) {
	good, err := check(t, installed())
	if text := strings.Join(good, "\n"); err != nil || len(good) != 5 || !strings.Contains(text, "1 of 2 controllers") || !strings.Contains(text, "fast") {
		t.Fatal(text, err)
	}
}

func TestEachThingThatIsMissingIsSaid(t *testing.T) {
	all := installed()
	if _, err := check(t, all[1:]); err == nil || !strings.Contains(err.Error(), "CSIDriver csi-mpath.io") {
		t.Error(err)
	}
	all = installed()
	all[1].(*apps.Deployment).Status.AvailableReplicas = 0
	all[2].(*apps.DaemonSet).Status.NumberAvailable = 1
	all[6].(*storage.CSINode).Spec.Drivers = nil
	_, err := check(t, all)
	if err == nil || !strings.Contains(err.Error(), "no pod of Deployment c") || !strings.Contains(err.Error(), "1 of 2 node plugins") || !strings.Contains(err.Error(), "on n2:") {
		t.Error(err)
	}
	if good, err := check(t, nil); err == nil || len(good) != 1 {
		t.Error(good, err)
	}
}
