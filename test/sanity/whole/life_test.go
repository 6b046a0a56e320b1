package whole

import (
	"bytes"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/driver"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
	"github.com/csi-mpath/csi-mpath/test/node"
)

// asked is a raw volume of one node.
func asked(name, transport string, size int64) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{Name: name, Parameters: map[string]string{"transport": transport},
		VolumeCapabilities: []*csi.VolumeCapability{raw()}, CapacityRange: &csi.CapacityRange{RequiredBytes: size}}
}

func raw() *csi.VolumeCapability {
	return &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
}

func create(t *testing.T, c *driver.Controller, r *csi.CreateVolumeRequest) *csi.Volume {
	t.Helper()
	v, err := c.CreateVolume(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return v.Volume
}

func publish(v *csi.Volume, nodeID string) *csi.ControllerPublishVolumeRequest {
	return &csi.ControllerPublishVolumeRequest{VolumeId: v.VolumeId, VolumeContext: v.VolumeContext, NodeId: nodeID, VolumeCapability: raw()}
}

func unpublish(t *testing.T, c *driver.Controller, v *csi.Volume, nodeID string) {
	t.Helper()
	if _, err := c.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: v.VolumeId, NodeId: nodeID}); err != nil {
		t.Error(err)
	}
}

// attach logs in to what a node was told.
func attach(t *testing.T, c *driver.Controller, v *csi.Volume, nodeID string) *node.Disk {
	t.Helper()
	told, err := c.ControllerPublishVolume(t.Context(), publish(v, nodeID))
	if err != nil {
		t.Fatal(err)
	}
	a, err := attrs.ParsePublishContext(told.PublishContext)
	if err != nil {
		t.Fatal(err)
	}
	d, err := node.Attach(t.Context(), a.Connection, backend.Auth{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// TestAVolumesLifeAtAStorageHost: made, written to, copied, expanded, taken from
// its node, and gone, over the controller, mutual TLS and a real target.
func TestAVolumesLifeAtAStorageHost(t *testing.T) {
	for _, transport := range []string{"iscsi", "nvme-tcp"} {
		t.Run(transport, func(t *testing.T) { life(t, New(t).Controller, transport) })
	}
}

func life(t *testing.T, c *driver.Controller, transport string) {
	ctx, old, fresh := t.Context(), bytes.Repeat([]byte("old!"), 1024), bytes.Repeat([]byte("new!"), 1024)
	c.HasNode = nil
	v := create(t, c, asked("v", transport, 10<<20))
	first := attach(t, c, v, "node-1")
	holds(t, first, make([]byte, len(old)), "a new volume")
	put(t, first, old)
	s, err := c.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: v.VolumeId})
	if err != nil {
		t.Fatal(err)
	}
	put(t, first, fresh)
	r := asked("copy", transport, 0)
	r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: s.Snapshot.SnapshotId}}}
	copied := create(t, c, r)
	holds(t, attach(t, c, copied, "node-1"), old, "a copy of the snapshot")
	grown, err := c.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: v.VolumeId, CapacityRange: &csi.CapacityRange{RequiredBytes: 64 << 20}})
	if err != nil || grown.CapacityBytes < 64<<20 {
		t.Errorf("expanded: got %v, %v", grown, err)
	}
	holds(t, first, fresh, "after it was expanded")

	if _, err = c.ControllerPublishVolume(ctx, publish(v, "node-2")); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a second node: got %v", err)
	}
	unpublish(t, c, v, "node-1")
	if _, err := first.WriteAt(old, 0); err == nil {
		t.Error("a node that was unpublished wrote")
	}
	second := attach(t, c, v, "node-2")
	holds(t, second, fresh, "what the next node sees")

	for _, v := range []*csi.Volume{v, copied} {
		unpublish(t, c, v, "")
		if _, err := c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.VolumeId}); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: s.Snapshot.SnapshotId}); err != nil {
		t.Error(err)
	}
	if left, err := c.ListVolumes(ctx, &csi.ListVolumesRequest{}); err != nil || len(left.Entries) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func put(t *testing.T, d *node.Disk, b []byte) {
	t.Helper()
	if _, err := d.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
}

func holds(t *testing.T, d *node.Disk, want []byte, what string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := d.ReadAt(got, 0); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got %q..., want %q...", what, got[:8], want[:8])
	}
}
