package driver

import (
	"context"
	"errors"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// CreateSnapshot makes a snapshot, or finds it.
func (c *Controller) CreateSnapshot(ctx context.Context, r *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if r.GetName() == "" {
		return nil, missing("name")
	}
	e, id, err := c.find(r.GetSourceVolumeId(), "source_volume_id")
	if err != nil {
		return nil, asStatus(err)
	}
	for k := range r.GetParameters() {
		if !strings.HasPrefix(k, "csi.storage.k8s.io/") {
			return nil, asStatus(refuse("parameters of the VolumeSnapshotClass: unknown key %q: there are none", k))
		}
	}
	s, err := e.CreateSnapshot(ctx, backend.CreateSnapshot{Name: r.GetName(), Of: id.Object})
	if err != nil {
		return nil, asStatus(err)
	}
	return &csi.CreateSnapshotResponse{Snapshot: e.snapshotOf(s)}, nil
}

// snapshotOf is a snapshot as CSI has it.
func (e *entry) snapshotOf(s backend.Snapshot) *csi.Snapshot {
	return &csi.Snapshot{SnapshotId: e.handle(s.ID), SourceVolumeId: e.handle(s.Of), SizeBytes: s.Size,
		CreationTime: timestamppb.New(s.Created), ReadyToUse: true}
}

// DeleteSnapshot removes a snapshot.
func (c *Controller) DeleteSnapshot(ctx context.Context, r *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	e, id, err := c.find(r.GetSnapshotId(), "snapshot_id")
	if errors.Is(err, errNoSuch) {
		return &csi.DeleteSnapshotResponse{}, nil
	}
	if err == nil {
		err = e.DeleteSnapshot(ctx, id.Object)
	}
	if err != nil {
		return nil, asStatus(err)
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

// GetSnapshot finds a snapshot.
func (c *Controller) GetSnapshot(ctx context.Context, r *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error) {
	s, err := c.snapshot(ctx, r.GetSnapshotId())
	if err != nil {
		return nil, asStatus(err)
	}
	return &csi.GetSnapshotResponse{Snapshot: s}, nil
}

func (c *Controller) snapshot(ctx context.Context, handle string) (*csi.Snapshot, error) {
	e, id, err := c.find(handle, "snapshot_id")
	if err != nil {
		return nil, err
	}
	s, err := e.Snapshot(ctx, id.Object)
	if err != nil {
		return nil, err
	}
	return e.snapshotOf(s), nil
}
