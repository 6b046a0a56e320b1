package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	kubetest "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
)

const driver = "csi-mpath.io"

// The log is for those who look for something in it. The handlers of errors sleep
// until a millisecond after the last error, which for virtual time is decades away.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	m.Run()
}

// server is an API server that can be away, or forget to tell.
type server struct {
	*fake.Clientset
	away, deaf atomic.Bool // deaf: no watch hears of anything
	mu         sync.Mutex
	watches    []watch.Interface
}

var errAway = errors.New("connection refused")

func newServer(objects ...runtime.Object) *server {
	s := &server{Clientset: fake.NewClientset(objects...)}
	s.PrependReactor("*", "*", func(kubetest.Action) (bool, runtime.Object, error) { return s.away.Load(), nil, errAway })
	s.PrependWatchReactor("*", func(a kubetest.Action) (bool, watch.Interface, error) {
		switch {
		case s.away.Load():
			return true, nil, errAway
		case s.deaf.Load():
			return true, watch.NewRaceFreeFake(), nil
		}
		w, err := s.Tracker().Watch(a.GetResource(), a.GetNamespace())
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watches = append(s.watches, w)
		return true, w, err
	})
	return s
}

// leave makes the server go away, and breaks its connections.
func (s *server) leave() {
	s.away.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		w.Stop()
	}
	s.watches = nil
}

// running plays a cluster in virtual time: everything is told when play begins.
func running(t *testing.T, s *server, play func(c *Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		c, ended := New(s, driver), make(chan struct{})
		go func() { defer close(ended); c.Run(ctx) }()
		defer func() { stop(); <-ended }()
		settle()
		play(c)
	})
}

// settle lets the informers do what they have to do.
func settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

func node(name string) *core.Node {
	return &core.Node{ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{"big": strings.Repeat("x", 1000)}}}
}

func pv(name, of, handle string) *core.PersistentVolume {
	return &core.PersistentVolume{ObjectMeta: meta.ObjectMeta{Name: name}, Spec: core.PersistentVolumeSpec{
		Capacity: core.ResourceList{core.ResourceStorage: resource.MustParse("3Gi")},
		PersistentVolumeSource: core.PersistentVolumeSource{CSI: &core.CSIPersistentVolumeSource{Driver: of, VolumeHandle: handle,
			VolumeAttributes: map[string]string{"iqn": "iqn." + handle}}}}}
}

func attachment(name, of, volume, node string, attached bool) *storage.VolumeAttachment {
	return &storage.VolumeAttachment{ObjectMeta: meta.ObjectMeta{Name: name}, Status: storage.VolumeAttachmentStatus{Attached: attached},
		Spec: storage.VolumeAttachmentSpec{Attacher: of, NodeName: node, Source: storage.VolumeAttachmentSource{PersistentVolumeName: &volume}}}
}

// has asks for a node, which may not fail.
func has(t *testing.T, c *Cluster, name string) bool {
	t.Helper()
	there, err := c.HasNode(t.Context(), name)
	if err != nil {
		t.Error(err)
	}
	return there
}

// attached are handles and their nodes.
func attached(t *testing.T, c *Cluster) map[string][]string {
	t.Helper()
	all, err := c.Attached(t.Context())
	if err != nil {
		t.Error(err)
	}
	out := map[string][]string{}
	for _, v := range all {
		out[v.Handle] = v.Nodes
	}
	return out
}

func TestNodesComeAndGo(t *testing.T) {
	s := newServer(node("a"))
	running(t, s, func(c *Cluster) {
		if !has(t, c, "a") || has(t, c, "b") {
			t.Error("want a and no b")
		}
		must(t, s.Tracker().Add(node("b")))
		must(t, s.CoreV1().Nodes().Delete(t.Context(), "a", meta.DeleteOptions{}))
		settle()
		if has(t, c, "a") || !has(t, c, "b") {
			t.Error("want b and no a")
		}
	})
}

func TestAVolumeIsAttachedWhereItsAttachmentSaysSo(t *testing.T) {
	s := newServer(pv("one", driver, "h1"), pv("two", driver, "h2"), pv("again", driver, "h1"), pv("foreign", "other.io", "h3"),
		attachment("1", driver, "one", "b", true), attachment("2", driver, "one", "a", true), attachment("3", driver, "again", "a", true),
		attachment("4", driver, "two", "a", false), attachment("5", "other.io", "foreign", "a", true), attachment("6", driver, "foreign", "a", true))
	running(t, s, func(c *Cluster) {
		want := map[string][]string{"h1": {"a", "b"}}
		if got := attached(t, c); !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		all, err := c.Attached(t.Context())
		if err != nil || all[0].Size != 3<<30 || all[0].Attributes["iqn"] != "iqn.h1" {
			t.Errorf("got %+v, %v", all, err)
		}
	})
}

func TestAttachmentsAreFollowed(t *testing.T) {
	s := newServer(pv("one", driver, "h1"))
	running(t, s, func(c *Cluster) {
		for i, on := range []bool{false, true, true, false} {
			a := attachment("x", driver, "one", "n", on)
			if i == 0 {
				must(t, s.Tracker().Add(a))
			} else if _, err := s.StorageV1().VolumeAttachments().Update(t.Context(), a, meta.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			settle()
			if got := attached(t, c); (len(got) == 1) != on {
				t.Errorf("step %d: got %v", i, got)
			}
		}
	})
}

func TestBeforeAllIsKnownNothingIsSaid(t *testing.T) {
	s := newServer(node("a"), pv("one", driver, "h1"), attachment("1", driver, "one", "a", true))
	s.away.Store(true)
	running(t, s, func(c *Cluster) {
		for range 3 {
			unknown(t, c, "a", "not known yet")
			time.Sleep(time.Hour)
		}
		s.away.Store(false)
		time.Sleep(10 * time.Minute)
		if !has(t, c, "a") || len(attached(t, c)) != 1 {
			t.Error("it does not know the cluster that came back")
		}
	})
}

// unknown checks that all answers are errors that say why.
func unknown(t *testing.T, c *Cluster, node, why string) {
	t.Helper()
	_, err := c.HasNode(t.Context(), node)
	if err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("a node: %v, want %s", err, why)
	}
	if all, err := c.Attached(t.Context()); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("attached: %v, %v, want %s", all, err, why)
	}
}

// TestACopyThatNobodyRefreshesIsNotBelievedForLong: a restart of the API server is
// not noticed, its absence is, and its return.
func TestACopyThatNobodyRefreshesIsNotBelievedForLong(t *testing.T) {
	s := newServer(node("a"), pv("one", driver, "h1"), attachment("1", driver, "one", "a", true))
	running(t, s, func(c *Cluster) {
		s.leave()
		time.Sleep(staleAfter / 2)
		if !has(t, c, "a") || len(attached(t, c)) != 1 {
			t.Error("a short absence is noticed")
		}
		if _, err := c.HasNode(t.Context(), "new"); !errors.Is(err, errAway) {
			t.Errorf("a node that may have come meanwhile: %v", err)
		}
		time.Sleep(staleAfter)
		unknown(t, c, "a", "has not told of")
		s.away.Store(false)
		time.Sleep(10 * time.Minute)
		if !has(t, c, "a") || len(attached(t, c)) != 1 {
			t.Error("the return is not noticed")
		}
	})
}

// TestWhatACopyLacksIsAskedFor: nobody is told that a node does not exist, and no
// volume is missing, because a watch is slow.
func TestWhatACopyLacksIsAskedFor(t *testing.T) {
	s := newServer(attachment("1", driver, "late", "a", true))
	s.deaf.Store(true)
	running(t, s, func(c *Cluster) {
		must(t, s.Tracker().Add(node("a")))
		must(t, s.Tracker().Add(pv("late", driver, "h1")))
		settle()
		if !has(t, c, "a") || has(t, c, "b") || len(attached(t, c)) != 1 {
			t.Errorf("want a, no b, and a volume, got %v", attached(t, c))
		}
		s.away.Store(true)
		if all, err := c.Attached(t.Context()); !errors.Is(err, errAway) {
			t.Errorf("a list that may lack a volume: %v, %v", all, err)
		}
	})
}

func TestAVolumeThatIsDeletedWhileAttachedIsLeftOut(t *testing.T) {
	s := newServer(pv("one", driver, "h1"), pv("two", driver, "h2"), attachment("1", driver, "one", "a", true), attachment("2", driver, "two", "a", true))
	running(t, s, func(c *Cluster) {
		must(t, s.CoreV1().PersistentVolumes().Delete(t.Context(), "one", meta.DeleteOptions{}))
		settle()
		if got := attached(t, c); !reflect.DeepEqual(got, map[string][]string{"h2": {"a"}}) {
			t.Errorf("got %v", got)
		}
	})
}

func TestTheCopyHasOnlyWhatIsAskedOfIt(t *testing.T) {
	foreign := pv("foreign", "other.io", "h")
	s := newServer(node("a"), foreign, attachment("1", "other.io", "foreign", "a", true))
	running(t, s, func(c *Cluster) {
		for _, m := range []*mirror{c.nodes, c.volumes, c.attachments} {
			for _, o := range m.informer.GetStore().List() {
				if text := fmt.Sprint(o); strings.Contains(text, "xxx") || strings.Contains(text, "other.io") {
					t.Errorf("%s: %s", m.what, text)
				}
			}
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
