package driver

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/csi-mpath/csi-mpath/pkg/volume"
)

// CSI 1.13 has volume health where versions before it had the volume condition.
// Kubelets ask for what they know, so the node speaks both: these are the numbers
// of CSI 1.12's csi.proto.
const (
	oldVolumeCondition csi.NodeServiceCapability_RPC_Type = 4
	// fieldCondition is NodeGetVolumeStatsResponse.volume_condition, and the others
	// are VolumeCondition's.
	fieldCondition protowire.Number = 2
	fieldAbnormal  protowire.Number = 1
	fieldMessage   protowire.Number = 2
)

// withCondition adds a volume's condition to its statistics, as CSI 1.12 has it.
func withCondition(r *csi.NodeGetVolumeStatsResponse, c volume.Condition) *csi.NodeGetVolumeStatsResponse {
	var m []byte
	if c.Abnormal {
		m = protowire.AppendVarint(protowire.AppendTag(m, fieldAbnormal, protowire.VarintType), 1)
	}
	m = protowire.AppendString(protowire.AppendTag(m, fieldMessage, protowire.BytesType), c.Message)
	r.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, fieldCondition, protowire.BytesType), m))
	return r
}

// health is the same as CSI 1.13 has it: nothing where nothing is wrong.
func health(id string, c volume.Condition) *csi.VolumeHealth {
	h := &csi.VolumeHealth{VolumeId: id}
	if !c.Abnormal {
		return h
	}
	e := &csi.VolumeHealth_VolumeHealthEntry{Status: csi.VolumeHealthErrorType_DEGRADED, Reason: "MultipathDegraded", Message: c.Message}
	if c.Inaccessible {
		e.Status, e.Reason = csi.VolumeHealthErrorType_INACCESSIBLE, "AllPathsLost"
	}
	h.HealthStatuses = append(h.HealthStatuses, e)
	return h
}
