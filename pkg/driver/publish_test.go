package driver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// published is what a node gets to know.
func published(t *testing.T, c *Controller, r *csi.ControllerPublishVolumeRequest) attrs.Attachment {
	t.Helper()
	got, err := c.ControllerPublishVolume(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	a, err := attrs.ParsePublishContext(got.PublishContext)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func unpublish(t *testing.T, c *Controller, v *csi.Volume, node string) {
	t.Helper()
	if _, err := c.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: v.VolumeId, NodeId: node}); err != nil {
		t.Error(err)
	}
}

func TestANodeLearnsAllItNeeds(t *testing.T) {
	c := newController(t, "east")
	for transport, prefix := range map[backend.Transport]string{backend.ISCSI: "iqn.", backend.NVMe: "nqn."} {
		v := create(t, c, string(transport), map[string]string{"transport": string(transport), "minPaths": "2"})
		first := published(t, c, publish(v, "node-1", mounted(rwo)))
		want := InitiatorName(transport, cluster, "node-1")
		if first.Transport != transport || !strings.HasPrefix(first.Target, prefix) || !strings.HasPrefix(first.Initiator, want) || first.Epoch == "" ||
			first.Tunables["minPaths"] != "2" || first.Fencing != attrs.FencingBackend || first.ReadOnly || first.CHAP {
			t.Errorf("%s: got %+v", transport, first)
		}
		if again := published(t, c, publish(v, "node-1", mounted(rwo))); again.Epoch != first.Epoch {
			t.Errorf("%s: published again under epoch %s, was %s", transport, again.Epoch, first.Epoch)
		}
		unpublish(t, c, v, "node-1")
		if next := published(t, c, publish(v, "node-1", mounted(rwo))); next.Epoch == first.Epoch {
			t.Errorf("%s: the epoch of a revoked publication came back", transport)
		}
	}
}

func TestWhoHasAVolumeDecidesWhoGetsIt(t *testing.T) {
	c := newController(t, "east")
	for what, w := range map[string]struct {
		first, second *csi.ControllerPublishVolumeRequest
		code          codes.Code
	}{
		"one node":             {publish(&csi.Volume{}, "a", mounted(rwo)), publish(&csi.Volume{}, "b", mounted(rwo)), codes.FailedPrecondition},
		"readers":              {publish(&csi.Volume{}, "a", mounted(rox)), publish(&csi.Volume{}, "b", mounted(rox)), codes.OK},
		"raw writers":          {publish(&csi.Volume{}, "a", raw(rwx)), publish(&csi.Volume{}, "b", raw(rwx)), codes.OK},
		"one and several":      {publish(&csi.Volume{}, "a", raw(rwo)), publish(&csi.Volume{}, "b", raw(rwx)), codes.FailedPrecondition},
		"a second writer":      {publish(&csi.Volume{}, "a", raw(mw1)), publish(&csi.Volume{}, "b", raw(mw1)), codes.FailedPrecondition},
		"the same node's mode": {publish(&csi.Volume{}, "a", raw(rwo)), publish(&csi.Volume{}, "a", raw(rwx)), codes.AlreadyExists},
	} {
		v := create(t, c, what, nil)
		w.first.VolumeId, w.second.VolumeId = v.VolumeId, v.VolumeId
		published(t, c, w.first)
		_, err := c.ControllerPublishVolume(t.Context(), w.second)
		if m := is(t, err, w.code, what); w.code == codes.FailedPrecondition && !strings.Contains(m, "node a") {
			t.Errorf("%s: %q does not name the node", what, m)
		}
		unpublish(t, c, v, "")
		published(t, c, w.second)
	}
}

func TestOneWriterAndItsReadersShareAVolume(t *testing.T) {
	c := newController(t, "east")
	v := create(t, c, "v", nil)
	reader := publish(v, "b", raw(mw1))
	reader.Readonly = true
	if a := published(t, c, publish(v, "a", raw(mw1))); a.ReadOnly {
		t.Error("the writer is a reader")
	}
	if a := published(t, c, reader); !a.ReadOnly {
		t.Error("a reader is a writer")
	}
	published(t, c, publish(v, "a", raw(mw1)))
}

func TestReadersWriteNothing(t *testing.T) {
	c := newController(t, "east")
	for _, mode := range []csi.VolumeCapability_AccessMode_Mode{rox, csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY} {
		if a := published(t, c, publish(create(t, c, mode.String(), nil), "a", mounted(mode))); !a.ReadOnly {
			t.Errorf("%v may write", mode)
		}
	}
}

func TestAFencedNodeGetsNothing(t *testing.T) {
	c := newController(t, "east")
	v := create(t, c, "v", nil)
	published(t, c, publish(v, "bad", mounted(rwo)))
	if err := of(t, c, "east").Fence(t.Context(), "bad"); err != nil {
		t.Fatal(err)
	}
	_, err := c.ControllerPublishVolume(t.Context(), publish(v, "bad", mounted(rwo)))
	is(t, err, codes.FailedPrecondition, "fenced")
	published(t, c, publish(v, "good", mounted(rwo)))
}

func TestUnpublishSucceedsWhateverIsGone(t *testing.T) {
	c := newController(t, "east")
	v := create(t, c, "v", nil)
	unpublish(t, c, v, "nobody")
	unpublish(t, c, v, "")
	if _, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.VolumeId}); err != nil {
		t.Fatal(err)
	}
	unpublish(t, c, v, "nobody")
	unpublish(t, c, &csi.Volume{VolumeId: "a static volume"}, "nobody")
	_, err := c.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{})
	is(t, err, codes.InvalidArgument, "no volume")
}

func TestAStaticVolumeIsPublishedAsItsAttributesSay(t *testing.T) {
	c := newController(t)
	v := &csi.Volume{VolumeId: "array-lun-7", VolumeContext: map[string]string{"targetPortal": "192.0.2.9", "iqn": "iqn.2000-01.com.example:a", "lun": "7"}}
	a := published(t, c, publish(v, "n", mounted(rwo)))
	if a.LUN != 7 || a.Fencing != attrs.FencingReservation || a.Epoch != "" || len(a.Portals) != 1 {
		t.Errorf("got %+v", a)
	}
	if a := published(t, c, publish(v, "n", mounted(rox))); !a.ReadOnly {
		t.Error("a reader may write")
	}
	v.VolumeContext["lun"] = "x"
	_, err := c.ControllerPublishVolume(t.Context(), publish(v, "n", mounted(rwo)))
	is(t, err, codes.InvalidArgument, "a LUN that is none")
}

func TestSecretsGoToTheBackendAndNowhereElse(t *testing.T) {
	c := newController(t, "east")
	v := create(t, c, "v", map[string]string{"transport": "iscsi"})
	r := publish(v, "n", mounted(rwo))
	var epoch string
	for i := range 2 {
		r.Secrets = map[string]string{"node.session.auth.username": "user", "node.session.auth.password": fmt.Sprintf("marked-secret-%d", i), "dhchap-secret": "DHHC-1:00:marked:"}
		got, err := c.ControllerPublishVolume(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		a, err := attrs.ParsePublishContext(got.PublishContext)
		if err != nil || !a.CHAP || strings.Contains(fmt.Sprint(got.PublishContext), "marked") {
			t.Errorf("got %v, %v", got.PublishContext, err)
		}
		if i > 0 && a.Epoch != epoch {
			t.Error("another secret made it another publication")
		}
		epoch = a.Epoch
	}
	r.Secrets = map[string]string{"node.session.auth.password": "marked-secret"}
	_, err := c.ControllerPublishVolume(t.Context(), r)
	if m := is(t, err, codes.InvalidArgument, "a password without a user"); strings.Contains(m, "marked") {
		t.Errorf("%q has the secret", m)
	}
}

func TestNodesHaveTheNamesTheyAreGiven(t *testing.T) {
	c := newController(t)
	cfg := Config{Cluster: cluster, Backends: []BackendConfig{agentAt("east")}, Nodes: map[string]NodeNames{"a": {ISCSI: "iqn.2000-01.com.example:a"}}}
	if err := c.Backends.Change(cfg); err != nil {
		t.Fatal(err)
	}
	v := create(t, c, "v", nil)
	if a := published(t, c, publish(v, "a", mounted(rwo))); !strings.HasPrefix(a.Initiator, "iqn.2000-01.com.example:a") {
		t.Errorf("got %s", a.Initiator)
	}
	seen := map[string]bool{}
	for _, cl := range []string{"x", "y"} {
		for _, node := range []string{"a", "b", strings.Repeat("n", backend.MaxNode)} {
			for _, tr := range []backend.Transport{backend.ISCSI, backend.NVMe} {
				name := InitiatorName(tr, cl, node)
				if err := backend.CheckInitiator(tr, name); err != nil || seen[name] {
					t.Errorf("%s, %s: %s, %v", cl, node, name, err)
				}
				seen[name] = true
			}
		}
	}
}

func TestOnlyNodesOfTheConfigurationGetVolumes(t *testing.T) {
	c := newController(t, "east")
	v := create(t, c, "v", nil)
	cfg := &c.Backends.current.Load().cfg
	cfg.OnlyNodes, cfg.Nodes = true, map[string]NodeNames{"node-1": {}}
	if _, err := c.ControllerPublishVolume(t.Context(), publish(v, "node-2", mounted(rwo))); status.Code(err) != codes.NotFound {
		t.Errorf("another node: got %v", err)
	}
	published(t, c, publish(v, "node-1", mounted(rwo)))
}
