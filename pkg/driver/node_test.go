package driver

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/csi-mpath/csi-mpath/pkg/attach/attachtest"
	"github.com/csi-mpath/csi-mpath/pkg/volume"
)

// newNode is one without storage.
func newNode(t *testing.T) *Node {
	t.Helper()
	dir := shortDir(t)
	machine, err := attachtest.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	v, err := volume.Open(volume.Config{State: filepath.Join(dir, "v"), Boot: "b", Devices: machine, Mounts: machine.Host})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.Close(context.Background()) })
	return &Node{ID: "node-1", Volumes: v, Limit: 7, Topology: map[string]string{"topology.kubernetes.io/zone": "a"}}
}

// ask makes each of a node's calls for a volume, at paths.
func (n *Node) ask(ctx context.Context, id, staging, target string) map[string]error {
	c := mounted(rwo)
	errs := map[string]error{}
	_, errs["stage"] = n.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: id, StagingTargetPath: staging, VolumeCapability: c})
	_, errs["publish"] = n.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: id, StagingTargetPath: staging, TargetPath: target, VolumeCapability: c})
	_, errs["stats"] = n.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: target})
	_, errs["health"] = n.NodeGetVolumeHealth(ctx, &csi.NodeGetVolumeHealthRequest{VolumeId: id, VolumePublishPath: target})
	_, errs["expand"] = n.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{VolumeId: id, VolumePath: target})
	_, errs["unpublish"] = n.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: target})
	_, errs["unstage"] = n.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: staging})
	return errs
}

// Cases D-11, D-13, D-18, D-20.
func TestCallsForAVolumeThatIsNotThereHaveTheirCodes(t *testing.T) {
	n, dir := newNode(t), shortDir(t)
	want := map[string]codes.Code{"stage": codes.InvalidArgument, "publish": codes.FailedPrecondition, "stats": codes.NotFound, "health": codes.NotFound,
		"expand": codes.NotFound, "unpublish": codes.OK, "unstage": codes.OK}
	for call, err := range n.ask(t.Context(), "nope", filepath.Join(dir, "s"), filepath.Join(dir, "t")) {
		is(t, err, want[call], call)
	}
}

func TestCallsWithoutTheirFieldsAreInvalid(t *testing.T) {
	n := newNode(t)
	for call, err := range n.ask(t.Context(), "", "", "") {
		is(t, err, codes.InvalidArgument, call)
	}
	_, err := n.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: "/x"})
	is(t, err, codes.InvalidArgument, "stage without a capability")
	_, err = n.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: "/x", VolumeCapability: mounted(rwx)})
	is(t, err, codes.InvalidArgument, "a file system for several writers")
}

// Report dell/csm#1769: who the node is does not depend on any storage.
func TestTheNodeKnowsItself(t *testing.T) {
	r, err := newNode(t).NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
	if err != nil || r.NodeId != "node-1" || r.MaxVolumesPerNode != 7 || r.AccessibleTopology.Segments["topology.kubernetes.io/zone"] != "a" {
		t.Errorf("%v, %v", r, err)
	}
}

func TestNodeErrorsHaveTheirCodes(t *testing.T) {
	for err, want := range map[error]codes.Code{
		volume.ErrInvalid: codes.InvalidArgument, volume.ErrNotFound: codes.NotFound, volume.ErrConflict: codes.AlreadyExists, volume.ErrBusy: codes.Aborted,
		volume.ErrUnsupported: codes.InvalidArgument, volume.ErrUnavailable: codes.Unavailable, volume.ErrState: codes.FailedPrecondition,
		volume.ErrIdentity: codes.FailedPrecondition, volume.ErrDenied: codes.PermissionDenied,
	} {
		is(t, asStatus(err), want, err.Error())
	}
}

func TestAConditionIsToldInBothForms(t *testing.T) {
	c := volume.Condition{Abnormal: true, Message: "1 of 2 paths work"}
	field, kind, n := protowire.ConsumeTag(withCondition(&csi.NodeGetVolumeStatsResponse{}, c).ProtoReflect().GetUnknown())
	if field != 2 || kind != protowire.BytesType || n < 0 {
		t.Errorf("field %d of type %d", field, kind)
	}
	h := health("v", c)
	if len(h.HealthStatuses) != 1 || h.HealthStatuses[0].Status != csi.VolumeHealthErrorType_DEGRADED {
		t.Errorf("degraded: %v", h)
	}
	c.Inaccessible = true
	if h = health("v", c); h.HealthStatuses[0].Status != csi.VolumeHealthErrorType_INACCESSIBLE {
		t.Errorf("inaccessible: %v", h)
	}
	if h = health("v", volume.Condition{Message: "2 paths work"}); len(h.HealthStatuses) != 0 {
		t.Errorf("well: %v", h)
	}
}
