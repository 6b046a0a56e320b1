package cluster

import (
	"testing"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTheTaintGoesWhereTheDriverIs(t *testing.T) {
	tainted := func(name string) *core.Node {
		n := node(name)
		n.Spec.Taints = []core.Taint{{Key: "other", Effect: core.TaintEffectNoExecute}, {Key: NotReadyTaint, Effect: core.TaintEffectNoSchedule}}
		return n
	}
	registered := func(name, of string) *storage.CSINode {
		return &storage.CSINode{ObjectMeta: meta.ObjectMeta{Name: name}, Spec: storage.CSINodeSpec{Drivers: []storage.CSINodeDriver{{Name: of}}}}
	}
	s := newServer(tainted("ready"), tainted("foreign"), tainted("new"), registered("ready", driver), registered("foreign", "other.io"))
	must(t, untaint(t.Context(), s, driver))
	for name, want := range map[string]int{"ready": 1, "foreign": 2, "new": 2} {
		n, err := s.CoreV1().Nodes().Get(t.Context(), name, meta.GetOptions{})
		must(t, err)
		if len(n.Spec.Taints) != want || n.Spec.Taints[0].Key != "other" {
			t.Errorf("%s: %v", name, n.Spec.Taints)
		}
	}
}
