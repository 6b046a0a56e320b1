// Package driver turns CSI calls into operations of volumes and backends, and
// typed errors into gRPC codes, which is done in errors.go alone.
//
// The controller keeps nothing: two of them may answer the same call at once. What
// is, is at the backends, whose verbs converge.
package driver

import (
	"context"
	"fmt"
	"maps"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/tunable"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// Controller is the controller half.
type Controller struct {
	csi.UnimplementedControllerServer
	Backends *Backends
	// HasNode reports whether the cluster has a node; nil believes that it has.
	HasNode func(ctx context.Context, node string) (bool, error)
	// Static are the static volumes that nodes have, in the order of their handles;
	// nil knows of none. An error says that nobody knows.
	Static func(ctx context.Context) ([]StaticVolume, error)
	// Told is told of what was done; it must not block, and nobody waits for what it
	// does. Nil functions are not called.
	Told Told
}

// Told are those who follow what the controller does.
type Told struct {
	Published   func(volume, node string, to attrs.Attachment)
	Unpublished func(volume, node string) // an empty node: all
	Tuned       func(volume string, generation int64, tunables map[string]string)
}

// StaticVolume is a volume that no backend knows, and that nodes have.
type StaticVolume struct {
	Handle string
	Size   int64 // bytes
	Nodes  []string
}

// abilities are what ControllerGetCapabilities claims.
var abilities = []csi.ControllerServiceCapability_RPC_Type{
	csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
	csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
	csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
	csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES,
	csi.ControllerServiceCapability_RPC_GET_CAPACITY,
	csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
	csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
	csi.ControllerServiceCapability_RPC_GET_SNAPSHOT,
	csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
	csi.ControllerServiceCapability_RPC_PUBLISH_READONLY,
	csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	csi.ControllerServiceCapability_RPC_GET_VOLUME,
	csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
}

// ControllerGetCapabilities says what can be asked.
func (c *Controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	out := &csi.ControllerGetCapabilitiesResponse{}
	for _, a := range abilities {
		out.Capabilities = append(out.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: a}}})
	}
	return out, nil
}

// find is where the object with a handle is: errNoSuch for a handle of another
// form, which names nothing that this controller made.
func (c *Controller) find(handle, field string) (*entry, attrs.ID, error) {
	if handle == "" {
		return nil, attrs.ID{}, missing(field)
	}
	id, err := attrs.ParseID(handle)
	if err != nil {
		return nil, id, fmt.Errorf("%w: %s", errNoSuch, err.Error())
	}
	e, err := c.Backends.current.Load().get(id.Backend)
	return e, id, err
}

// pool is a pool of a backend as it is now.
func (e *entry) pool(ctx context.Context, name string) (backend.Pool, error) {
	info, err := e.Info(ctx)
	if err != nil {
		return backend.Pool{}, fmt.Errorf("backend %s: %w", e.cfg.Name, err)
	}
	for _, p := range info.Pools {
		if p.Name == name || (name == "" && len(info.Pools) == 1) {
			return p, nil
		}
	}
	if name == "" {
		return backend.Pool{}, refuse("pool: backend %s has %d: name one in the StorageClass", e.cfg.Name, len(info.Pools))
	}
	return backend.Pool{}, refuse("pool: backend %s has none called %q", e.cfg.Name, name)
}

// transport is the one that a volume is reached by.
func transport(wanted backend.Transport, p backend.Pool) (backend.Transport, error) {
	for _, t := range p.Transports {
		if wanted == "" || t == wanted {
			return t, nil
		}
	}
	return "", refuse("transport: pool %s has %v, not %q", p.Name, p.Transports, wanted)
}

// sizeOf reads what size is wanted; unset is what is taken where none is.
func sizeOf(r *csi.CapacityRange, unset int64) (backend.Size, error) {
	s := backend.Size{Required: r.GetRequiredBytes(), Limit: r.GetLimitBytes()}
	if err := s.Check(); err != nil {
		return s, err
	}
	if s.Limit > 0 && s.Required > s.Limit {
		return s, refuse("capacity_range: required_bytes %d are more than limit_bytes %d", s.Required, s.Limit)
	}
	if s.Required == 0 && (s.Limit == 0 || s.Limit >= unset) {
		s.Required = unset
	}
	return s, nil
}

// tunablesOf reads mutable parameters: they are tunables, and nothing else.
func tunablesOf(params map[string]string) (map[string]string, error) {
	class, err := attrs.ParseClass(params)
	if err != nil {
		return nil, err
	}
	if class.Backend != "" || class.Pool != "" || class.Transport != "" || len(class.Mkfs) > 0 {
		return nil, refuse("mutable_parameters: backend, pool, transport and mkfsOptions are those of the StorageClass: use some of %v", tunable.Names())
	}
	return class.Tunables, nil
}

// volumeOf is a volume as CSI has it.
func (e *entry) volumeOf(v backend.Volume, context map[string]string) *csi.Volume {
	out := &csi.Volume{VolumeId: e.handle(v.ID), CapacityBytes: v.Size, VolumeContext: context, ContentSource: e.sourceOf(v.Source)}
	if len(e.cfg.Topology) > 0 {
		out.AccessibleTopology = []*csi.Topology{{Segments: maps.Clone(e.cfg.Topology)}}
	}
	return out
}

// handle is the volume or snapshot ID.
func (e *entry) handle(id backend.ID) string {
	return attrs.ID{Backend: e.cfg.Name, Object: id}.String()
}

// sourceOf is a source as CSI has it.
func (e *entry) sourceOf(s backend.Source) *csi.VolumeContentSource {
	switch {
	case !s.Volume.IsZero():
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: e.handle(s.Volume)}}}
	case !s.Snapshot.IsZero():
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: e.handle(s.Snapshot)}}}
	}
	return nil
}
