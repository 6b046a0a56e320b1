package driver

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// replica is a second controller over the same backends.
func replica(c *Controller) *Controller { return &Controller{Backends: c.Backends} }

// together makes a call five times at once, at two replicas, and wants the same
// answer each time.
func together[A proto.Message](t *testing.T, c *Controller, what string, call func(c *Controller) (A, error)) A {
	t.Helper()
	const n = 5
	var wg sync.WaitGroup
	var answers [n]A
	var errs [n]error
	for i := range n {
		wg.Go(func() { answers[i], errs[i] = call([]*Controller{c, replica(c)}[i%2]) })
	}
	wg.Wait()
	for i := range n {
		if errs[i] != nil {
			t.Fatalf("%s: %v", what, errs[i])
		}
		if !proto.Equal(answers[i], answers[0]) {
			t.Errorf("%s: got %v and %v", what, answers[0], answers[i])
		}
	}
	return answers[0]
}

func TestTheSameCallAtOnceAtTwoReplicasIsOneCall(t *testing.T) {
	c, ctx := newController(t, "east"), t.Context()
	v := together(t, c, "CreateVolume", func(c *Controller) (*csi.CreateVolumeResponse, error) { return c.CreateVolume(ctx, asked("v", nil)) }).Volume
	s := together(t, c, "CreateSnapshot", func(c *Controller) (*csi.CreateSnapshotResponse, error) {
		return c.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: v.VolumeId})
	}).Snapshot
	together(t, c, "CreateVolume of it", func(c *Controller) (*csi.CreateVolumeResponse, error) {
		r := asked("copy", nil)
		r.VolumeContentSource = fromSnapshot(s.SnapshotId)
		return c.CreateVolume(ctx, r)
	})
	// What is known of the bytes differs between the first publication and the next.
	published(t, c, publish(v, "node-1", mounted(rwo)))
	together(t, c, "ControllerPublishVolume", func(c *Controller) (*csi.ControllerPublishVolumeResponse, error) {
		return c.ControllerPublishVolume(ctx, publish(v, "node-1", mounted(rwo)))
	})
	together(t, c, "ControllerExpandVolume", func(c *Controller) (*csi.ControllerExpandVolumeResponse, error) {
		return c.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: v.VolumeId, CapacityRange: &csi.CapacityRange{RequiredBytes: 32 * mib}})
	})
	together(t, c, "ControllerModifyVolume", func(c *Controller) (*csi.ControllerModifyVolumeResponse, error) {
		return c.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{VolumeId: v.VolumeId, MutableParameters: map[string]string{"polling": "off"}})
	})
	together(t, c, "ControllerUnpublishVolume", func(c *Controller) (*csi.ControllerUnpublishVolumeResponse, error) {
		return c.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: v.VolumeId, NodeId: "node-1"})
	})
	together(t, c, "DeleteVolume", func(c *Controller) (*csi.DeleteVolumeResponse, error) {
		return c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.VolumeId})
	})
	together(t, c, "DeleteSnapshot", func(c *Controller) (*csi.DeleteSnapshotResponse, error) {
		return c.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: s.SnapshotId})
	})
}

// ledger is the model: what should be there, by name.
type ledger struct {
	size map[string]int64
	id   map[string]string
	user map[string]string // of a volume that one node has
}

// TestRandomCallsLeaveWhatTheModelSays makes 10,000 calls, at two replicas in
// turn.
func TestRandomCallsLeaveWhatTheModelSays(t *testing.T) {
	first := newController(t, "east")
	both := []*Controller{first, replica(first)}
	m := ledger{size: map[string]int64{}, id: map[string]string{}, user: map[string]string{}}
	rnd := rand.New(rand.NewPCG(3, 5))
	for i := range 10000 {
		name, node := fmt.Sprint("v", rnd.IntN(6)), fmt.Sprint("n", rnd.IntN(3))
		what, got, want := m.step(t, both[i%2], rnd, name, node)
		if got != want {
			t.Fatalf("call %d, %s of %s: got %v, want %v", i, what, name, got, want)
		}
	}
	var got, want []string
	for _, e := range volumes(t, first, 0) {
		got = append(got, fmt.Sprint(e.Volume.VolumeId, e.Volume.CapacityBytes, strings.Join(e.Status.PublishedNodeIds, ",")))
	}
	for name, id := range m.id {
		want = append(want, fmt.Sprint(id, m.size[name], m.user[name]))
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// handle is the ID of a volume, of one that is gone, or of one that never was.
func (m *ledger) handle(name string) string {
	if id := m.id[name]; id != "" {
		return id
	}
	return "1.east.fast.v-gone" + name
}

// step makes one random call; what it should end in is what the model says.
func (m *ledger) step(t *testing.T, c *Controller, rnd *rand.Rand, name, node string) (what string, got, want codes.Code) {
	ctx, there := t.Context(), m.id[name] != ""
	user, has := m.user[name]
	switch rnd.IntN(5) {
	case 0:
		size := int64(1+rnd.IntN(3)) * 4 * mib
		r := asked(name, nil)
		r.CapacityRange.RequiredBytes = size
		v, err := c.CreateVolume(ctx, r)
		if there && size > m.size[name] {
			want = codes.AlreadyExists
		} else if !there {
			m.id[name], m.size[name] = v.GetVolume().GetVolumeId(), size
		}
		return "CreateVolume", status.Code(err), want
	case 1:
		_, err := c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: m.handle(name)})
		if has {
			want = codes.FailedPrecondition
		} else {
			delete(m.id, name)
			delete(m.size, name)
		}
		return "DeleteVolume", status.Code(err), want
	case 2:
		_, err := c.ControllerPublishVolume(ctx, publish(&csi.Volume{VolumeId: m.handle(name)}, node, mounted(rwo)))
		switch {
		case !there:
			want = codes.NotFound
		case has && user != node:
			want = codes.FailedPrecondition
		default:
			m.user[name] = node
		}
		return "ControllerPublishVolume", status.Code(err), want
	case 3:
		_, err := c.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: m.handle(name), NodeId: node})
		if user == node {
			delete(m.user, name)
		}
		return "ControllerUnpublishVolume", status.Code(err), codes.OK
	}
	size := int64(1+rnd.IntN(3)) * 4 * mib
	_, err := c.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: m.handle(name), CapacityRange: &csi.CapacityRange{RequiredBytes: size}})
	if !there {
		want = codes.NotFound
	} else {
		m.size[name] = max(m.size[name], size)
	}
	return "ControllerExpandVolume", status.Code(err), want
}
