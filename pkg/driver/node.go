package driver

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-mpath/csi-mpath/pkg/secret"
	"github.com/csi-mpath/csi-mpath/pkg/volume"
)

// Node is the node half: CSI's words for pkg/volume's verbs.
type Node struct {
	csi.UnimplementedNodeServer
	// ID is the node's name; Volumes what it has.
	ID      string
	Volumes *volume.Node
	// Limit is how many volumes the node can have; 0 is for the orchestrator to
	// find out.
	Limit int64
	// Topology are the labels of the node that backends may ask for; nil is none.
	Topology map[string]string
}

// NodeGetInfo touches neither network nor storage: it is what decides whether the
// node can be used at all.
func (n *Node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	r := &csi.NodeGetInfoResponse{NodeId: n.ID, MaxVolumesPerNode: n.Limit}
	if len(n.Topology) > 0 {
		r.AccessibleTopology = &csi.Topology{Segments: n.Topology}
	}
	return r, nil
}

// nodeCapabilities are what the node can do.
var nodeCapabilities = []csi.NodeServiceCapability_RPC_Type{
	csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
	csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
	csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
	csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
	oldVolumeCondition,
	csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
}

// NodeGetCapabilities says what the node can do.
func (n *Node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	r := &csi.NodeGetCapabilitiesResponse{}
	for _, c := range nodeCapabilities {
		r.Capabilities = append(r.Capabilities, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{
			Rpc: &csi.NodeServiceCapability_RPC{Type: c}}})
	}
	return r, nil
}

// required refuses a request without one of its fields, given as name and value.
func required(fields ...string) error {
	for i := 0; i < len(fields); i += 2 {
		if fields[i+1] == "" {
			return missing(fields[i])
		}
	}
	return nil
}

// NodeStageVolume connects a volume, and mounts its file system.
func (n *Node) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId(), "staging_target_path", r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	a, err := accessOf(r.GetVolumeCapability())
	if err != nil {
		return nil, asStatus(err)
	}
	m := r.GetVolumeCapability().GetMount()
	err = n.Volumes.Stage(ctx, volume.StageRequest{Volume: r.GetVolumeId(), Staging: r.GetStagingTargetPath(), Block: a.block,
		FSType: m.GetFsType(), Options: m.GetMountFlags(), ReadOnly: a.readOnly, Exclusive: !a.shared,
		PublishContext: r.GetPublishContext(), VolumeContext: r.GetVolumeContext(), Secrets: secretsOf(r.GetSecrets())})
	if err != nil {
		return nil, asStatus(err)
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// NodeUnstageVolume takes a volume away.
func (n *Node) NodeUnstageVolume(ctx context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId(), "staging_target_path", r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	if err := n.Volumes.Unstage(ctx, r.GetVolumeId(), r.GetStagingTargetPath()); err != nil {
		return nil, asStatus(err)
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// NodePublishVolume makes a staged volume appear at a path. It comes again now and
// then (requiresRepublish), with the secrets of that time.
func (n *Node) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId(), "target_path", r.GetTargetPath()); err != nil {
		return nil, err
	}
	a, err := accessOf(r.GetVolumeCapability())
	if err == nil && r.GetStagingTargetPath() == "" {
		err = fmt.Errorf("%w: staging_target_path is missing: stage the volume first", volume.ErrState)
	}
	if err != nil {
		return nil, asStatus(err)
	}
	err = n.Volumes.Publish(ctx, volume.PublishRequest{Volume: r.GetVolumeId(), Staging: r.GetStagingTargetPath(), Target: r.GetTargetPath(),
		Block: a.block, ReadOnly: r.GetReadonly(), Alone: r.GetVolumeCapability().GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
		PublishContext: r.GetPublishContext(), Secrets: secretsOf(r.GetSecrets())})
	if err != nil {
		return nil, asStatus(err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// NodeUnpublishVolume takes it away from there.
func (n *Node) NodeUnpublishVolume(ctx context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId(), "target_path", r.GetTargetPath()); err != nil {
		return nil, err
	}
	if err := n.Volumes.Unpublish(ctx, r.GetVolumeId(), r.GetTargetPath()); err != nil {
		return nil, asStatus(err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// NodeExpandVolume makes the node see that a volume grew.
func (n *Node) NodeExpandVolume(ctx context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId(), "volume_path", r.GetVolumePath()); err != nil {
		return nil, err
	}
	size, err := n.Volumes.Expand(ctx, r.GetVolumeId(), r.GetCapacityRange().GetRequiredBytes())
	if err != nil {
		return nil, asStatus(err)
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, nil
}

// NodeGetVolumeStats reads a volume's numbers.
func (n *Node) NodeGetVolumeStats(ctx context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if err := required("volume_id", r.GetVolumeId(), "volume_path", r.GetVolumePath()); err != nil {
		return nil, err
	}
	s, err := n.Volumes.Stats(ctx, r.GetVolumeId(), r.GetVolumePath())
	if err != nil {
		return nil, asStatus(err)
	}
	return withCondition(&csi.NodeGetVolumeStatsResponse{Usage: usage(s)}, s.Condition), nil
}

// NodeGetVolumeHealth reads a volume's condition, without asking the volume.
func (n *Node) NodeGetVolumeHealth(_ context.Context, r *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	if err := required("volume_id", r.GetVolumeId()); err != nil {
		return nil, err
	}
	path := r.GetVolumePublishPath()
	if path == "" {
		path = r.GetStagingTargetPath()
	}
	c, err := n.Volumes.Condition(r.GetVolumeId(), path)
	if err != nil {
		return nil, asStatus(err)
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: health(r.GetVolumeId(), c)}, nil
}

// usage is what is known: of a raw volume, or one that cannot be asked, the size.
func usage(s volume.Stats) []*csi.VolumeUsage {
	u := s.Usage
	if u == nil {
		return []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: s.Size}}
	}
	return []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: int64(u.Bytes), Used: int64(u.BytesUsed), Available: int64(u.BytesFree)},
		{Unit: csi.VolumeUsage_INODES, Total: int64(u.Inodes), Used: int64(u.InodesUsed), Available: int64(u.InodesFree)},
	}
}

// secretsOf makes texts of them that never print themselves (I10).
func secretsOf(in map[string]string) volume.Secrets {
	if len(in) == 0 {
		return nil
	}
	out := make(volume.Secrets, len(in))
	for k, v := range in {
		out[k] = secret.Text(v)
	}
	return out
}
