package mpv

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"

	"github.com/csi-mpath/csi-mpath/pkg/api/v1alpha1"
	"github.com/csi-mpath/csi-mpath/pkg/health"
)

// The handlers of errors sleep until a moment that virtual time never reaches.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	m.Run()
}

const vol = "1.east.fast.v-1"

func objects() *dynamicfake.FakeDynamicClient {
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{v1alpha1.Resource: "MultipathVolumeList"})
}

// get is an object; nil if there is none.
func get(t *testing.T, c *dynamicfake.FakeDynamicClient, k Key) *v1alpha1.MultipathVolume {
	t.Helper()
	u, err := c.Resource(v1alpha1.Resource).Get(t.Context(), k.Name(), meta.GetOptions{})
	if err != nil {
		return nil
	}
	o, err := slim(u)
	if err != nil {
		t.Fatal(err)
	}
	return o.(*v1alpha1.MultipathVolume)
}

// during runs something in virtual time while play plays.
func during(t *testing.T, run func(context.Context), play func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); run(ctx) }()
	settle()
	play()
	stop()
	<-ended
}

func settle() {
	time.Sleep(2 * time.Second)
	synctest.Wait()
}

func TestAnObjectIsThereAsLongAsThePublication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, k := objects(), Key{vol, "n1"}
		keeper := NewKeeper(c, func(string) *meta.OwnerReference {
			return &meta.OwnerReference{APIVersion: "v1", Kind: "PersistentVolume", Name: "pv-1", UID: "u"}
		})
		during(t, keeper.Run, func() {
			keeper.Published(v1alpha1.MultipathVolumeSpec{Volume: vol, Node: "n1", Generation: 1, Tunables: map[string]string{"minPaths": "2"}, Portals: []string{"a:1", "b:1"}})
			settle()
			v := get(t, c, k)
			if v == nil || v.OwnerReferences[0].Name != "pv-1" || v.Labels[NodeLabel] != "n1" || v.Spec.Tunables["minPaths"] != "2" || len(v.Spec.Portals) != 2 {
				t.Fatalf("got %+v", v)
			}
			keeper.Tuned(vol, 2, map[string]string{"minPaths": "1"})
			settle()
			if v = get(t, c, k); v.Spec.Generation != 2 || v.Spec.Tunables["minPaths"] != "1" || len(v.Spec.Portals) != 2 {
				t.Errorf("tuned: %+v", v.Spec)
			}
			keeper.Unpublished(vol, "n1")
			settle()
			if v = get(t, c, k); v != nil {
				t.Errorf("it is still there: %+v", v)
			}
		})
	})
}

// node is a node's volumes, which a test changes.
type node struct {
	mu      sync.Mutex
	up      bool
	refused bool
	seen    health.Seen
	tuned   []int64
	revoked []string
}

func (n *node) volumes() Volumes {
	return Volumes{
		List: func() []string { return []string{vol} },
		Seen: func(string) (health.Seen, bool) {
			n.mu.Lock()
			defer n.mu.Unlock()
			s := n.seen
			s.Paths = []health.Path{{Portal: "a:1", Up: n.up}, {Portal: "b:1", Up: true}}
			return s, true
		},
		Tune: func(_ context.Context, _ string, g int64, _ map[string]string) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.seen.Generation, n.tuned = g, append(n.tuned, g)
			return nil
		},
		Revoke: func(_ context.Context, v, _ string) error { n.revoked = append(n.revoked, v); return nil },
		Refused: func(string) bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.refused
		},
	}
}

func (n *node) set(up, refused bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.up, n.refused = up, refused
}

func TestANodeReportsItsPathsAndFollowsItsTunables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, k, n := objects(), Key{vol, "n1"}, &node{up: true}
		keeper := NewKeeper(c, func(string) *meta.OwnerReference { return nil })
		r := NewReporter(c, "n1", n.volumes())
		writes := 0
		r.Wrote = func(error) { writes++ }
		during(t, func(ctx context.Context) {
			var all sync.WaitGroup
			all.Go(func() { keeper.Run(ctx) })
			all.Go(func() { r.Run(ctx) })
			all.Wait()
		}, func() {
			keeper.Published(v1alpha1.MultipathVolumeSpec{Volume: vol, Node: "n1", Generation: 1})
			settle()
			if v := get(t, c, k); v.Status.State != v1alpha1.Healthy || v.Status.Working != "2/2" || v.Status.Generation != 1 {
				t.Errorf("at first: %+v", v.Status)
			}
			keeper.Tuned(vol, 3, map[string]string{"minPaths": "1"})
			settle()
			settle()
			if v := get(t, c, k); v.Status.Generation != 3 || n.seen.Generation != 3 {
				t.Errorf("tuned: %+v", v.Status)
			}
			n.set(false, false)
			r.Changed()
			r.Happened(vol, "PathIdentityMismatch", "a:1: another volume")
			settle()
			settle()
			v := get(t, c, k)
			if v.Status.State != v1alpha1.Degraded || len(v.Status.Notes) != 1 || v.Status.Notes[0].Reason != "PathIdentityMismatch" {
				t.Errorf("a path is down: %+v", v.Status)
			}
			before := writes
			for range 100 { // flaps, a minute of them
				n.set(true, false)
				r.Changed()
				time.Sleep(300 * time.Millisecond)
				n.set(false, false)
				r.Changed()
				time.Sleep(300 * time.Millisecond)
			}
			synctest.Wait()
			if writes-before > 61 {
				t.Errorf("%d writes in a minute", writes-before)
			}
		})
	})
}

// TestANodeThatComesBackCleansUp: neither a lost object nor a refusal alone is a proof.
func TestANodeThatComesBackCleansUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n := objects(), &node{up: true}
		keeper := NewKeeper(c, func(string) *meta.OwnerReference { return nil })
		r := NewReporter(c, "n1", n.volumes())
		during(t, func(ctx context.Context) {
			var all sync.WaitGroup
			all.Go(func() { keeper.Run(ctx) })
			all.Go(func() { r.Run(ctx) })
			all.Wait()
		}, func() {
			keeper.Published(v1alpha1.MultipathVolumeSpec{Volume: vol, Node: "n1"})
			n.set(false, true)
			time.Sleep(5 * time.Minute)
			n.set(true, false)
			keeper.Unpublished(vol, "n1")
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			if len(n.revoked) != 0 {
				t.Error("one sign was enough")
			}
			n.set(false, true)
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if !slices.Equal(n.revoked, []string{vol}) {
				t.Errorf("revoked: %v", n.revoked)
			}
		})
	})
}

func TestEventsAreAboutTheClaimThePodAndTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := objects()
		client := fake.NewClientset(&core.Pod{ObjectMeta: meta.ObjectMeta{Namespace: "shop", Name: "db-0", UID: "pod"}, Spec: core.PodSpec{NodeName: "n1",
			Volumes: []core.Volume{{VolumeSource: core.VolumeSource{PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}})
		pv := &core.PersistentVolume{Spec: core.PersistentVolumeSpec{ClaimRef: &core.ObjectReference{Namespace: "shop", Name: "data", UID: "claim"}}}
		teller := &Teller{Client: client, Dynamic: c, Persistent: func(string) *core.PersistentVolume { return pv }, Namespace: "csi", Name: "pod-1"}
		n := &node{up: true}
		keeper, r := NewKeeper(c, func(string) *meta.OwnerReference { return nil }), NewReporter(c, "n1", n.volumes())
		during(t, func(ctx context.Context) {
			var all sync.WaitGroup
			all.Go(func() { teller.Run(ctx) })
			all.Go(func() { keeper.Run(ctx) })
			all.Go(func() { r.Run(ctx) })
			all.Wait()
		}, func() {
			keeper.Published(v1alpha1.MultipathVolumeSpec{Volume: vol, Node: "n1"})
			time.Sleep(time.Minute)
			n.set(false, false)
			r.Changed()
			time.Sleep(time.Minute)
			got := told(t, client)
			for _, want := range []string{"PersistentVolumeClaim shop/data MultipathDegraded", "Pod shop/db-0 MultipathDegraded", "Node /n1 PathDown"} {
				if !slices.Contains(got, want) {
					t.Errorf("no %s among %v", want, got)
				}
			}
			if len(got) != 3 {
				t.Errorf("got %v", got)
			}
			n.set(true, false)
			r.Changed()
			time.Sleep(time.Minute)
			if got = told(t, client); len(got) != 6 || strings.Count(strings.Join(got, "\n"), "PathUp") != 3 {
				t.Errorf("after the return: %v", got)
			}
		})
	})
}

// told are the Events, as object and reason.
func told(t *testing.T, c *fake.Clientset) (out []string) {
	t.Helper()
	all, err := c.EventsV1().Events("").List(t.Context(), meta.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all.Items {
		out = append(out, e.Regarding.Kind+" "+e.Regarding.Namespace+"/"+e.Regarding.Name+" "+e.Reason)
	}
	return out
}

func TestNamesAndLabelsAreWhatKubernetesTakes(t *testing.T) {
	long := strings.Repeat("X_/", 200)
	for _, k := range []Key{{vol, "n1"}, {long, long}, {"iqn.2000-01.x:y/1", "n.example"}} {
		if n := k.Name(); len(n) > 253 || strings.ContainsAny(n, "_/:") || strings.HasPrefix(n, "-") {
			t.Errorf("%v: %s", k, n)
		}
		if l := label(k.Node); len(l) > 63 || strings.ContainsAny(l, "/:") {
			t.Errorf("%v: %s", k, l)
		}
	}
	if (Key{"a", "b"}).Name() == (Key{"a", "c"}).Name() {
		t.Error("two nodes have one object")
	}
}
