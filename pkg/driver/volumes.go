package driver

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/tunable"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// CreateVolume makes a volume, or finds it.
func (c *Controller) CreateVolume(ctx context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if r.GetName() == "" {
		return nil, missing("name")
	}
	if err := checkAccess(r.GetVolumeCapabilities()); err != nil {
		return nil, asStatus(err)
	}
	e, class, ask, err := c.creation(ctx, r)
	if err != nil {
		return nil, asStatus(err)
	}
	v, err := e.CreateVolume(ctx, ask)
	if errors.Is(err, backend.ErrUnsupported) {
		err = refuse("volume_content_source: %w", err) // a parameter, not the verb
	}
	if err != nil {
		return nil, asStatus(fmt.Errorf("backend %s: %w", e.cfg.Name, err))
	}
	return &csi.CreateVolumeResponse{Volume: e.volumeOf(v, attrs.VolumeContext(class))}, nil
}

// creation is what a backend is asked for.
func (c *Controller) creation(ctx context.Context, r *csi.CreateVolumeRequest) (e *entry, class attrs.Class, ask backend.CreateVolume, err error) {
	if class, err = attrs.ParseClass(r.GetParameters()); err != nil {
		return nil, class, ask, err
	}
	changes, err := tunablesOf(r.GetMutableParameters())
	if err != nil {
		return nil, class, ask, err
	}
	if e, err = c.Backends.current.Load().place(class.Backend, r.GetAccessibilityRequirements()); err != nil {
		return nil, class, ask, err
	}
	ask = backend.CreateVolume{Name: r.GetName(), Tunables: tunable.Merge(class.Tunables, changes)}
	if _, err = tunable.Parse(ask.Tunables); err != nil {
		return nil, class, ask, refuse("%w", err)
	}
	if ask.Source, err = c.source(e, r.GetVolumeContentSource()); err != nil {
		return nil, class, ask, err
	}
	unset := int64(defaultSize)
	if !ask.Source.IsZero() {
		unset = 0 // the source's
	}
	if ask.Size, err = sizeOf(r.GetCapacityRange(), unset); err != nil {
		return nil, class, ask, err
	}
	pool, err := e.pool(ctx, class.Pool)
	if err != nil {
		return nil, class, ask, err
	}
	ask.Pool = pool.Name
	_, err = transport(class.Transport, pool)
	return e, class, ask, err
}

// place chooses the backend: the one that the StorageClass names, or the only one.
// Any other choice could differ when the call is repeated, and make two volumes.
func (s *estate) place(name string, where *csi.TopologyRequirement) (*entry, error) {
	if name == "" && len(s.entries) != 1 {
		return nil, refuse("backend: the controller has %d: name one in the StorageClass", len(s.entries))
	}
	if name == "" {
		name = s.entries[0].cfg.Name
	}
	e, err := s.get(name)
	if err != nil {
		return nil, refuse("%w", err)
	}
	if !e.reached(where) {
		return nil, fmt.Errorf("backend %s is reached from nodes with the labels %v only: %w there", name, e.cfg.Topology, backend.ErrNoSpace)
	}
	return e, nil
}

// reached reports whether one of the places that are asked for reaches a backend.
func (e *entry) reached(where *csi.TopologyRequirement) bool {
	if len(where.GetRequisite()) == 0 {
		return true
	}
	for _, t := range where.GetRequisite() {
		if e.reachedFrom(t) {
			return true
		}
	}
	return false
}

// reachedFrom reports whether nodes with these segments reach a backend.
func (e *entry) reachedFrom(t *csi.Topology) bool {
	for k, v := range e.cfg.Topology {
		if t.GetSegments()[k] != v {
			return false
		}
	}
	return true
}

// source reads what a volume shall be a copy of.
func (c *Controller) source(e *entry, s *csi.VolumeContentSource) (out backend.Source, err error) {
	var handle string
	switch {
	case s == nil:
		return out, nil
	case s.GetVolume() != nil:
		handle = s.GetVolume().GetVolumeId()
	case s.GetSnapshot() != nil:
		handle = s.GetSnapshot().GetSnapshotId()
	default:
		return out, refuse("volume_content_source: neither a volume nor a snapshot")
	}
	from, id, err := c.find(handle, "volume_content_source")
	if err != nil {
		return out, err
	}
	if from != e {
		return out, refuse("volume_content_source %s is at backend %s: a copy is made at the same backend, not at %s", handle, from.cfg.Name, e.cfg.Name)
	}
	if s.GetVolume() != nil {
		out.Volume = id.Object
	} else {
		out.Snapshot = id.Object
	}
	return out, nil
}

// DeleteVolume removes a volume. What this controller cannot have made is not
// there.
func (c *Controller) DeleteVolume(ctx context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	e, id, err := c.find(r.GetVolumeId(), "volume_id")
	if errors.Is(err, errNoSuch) {
		return &csi.DeleteVolumeResponse{}, nil
	}
	if err == nil {
		err = e.DeleteVolume(ctx, id.Object)
	}
	if err != nil {
		return nil, asStatus(err)
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// ControllerExpandVolume makes a volume longer, while it is in use as well.
func (c *Controller) ControllerExpandVolume(ctx context.Context, r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	e, id, err := c.find(r.GetVolumeId(), "volume_id")
	if err != nil {
		return nil, asStatus(err)
	}
	if r.GetCapacityRange() == nil {
		return nil, missing("capacity_range")
	}
	size, err := sizeOf(r.GetCapacityRange(), 0)
	if err != nil {
		return nil, asStatus(err)
	}
	v, err := e.ExpandVolume(ctx, id.Object, size)
	if err != nil {
		return nil, asStatus(err)
	}
	// The node's device grows by itself; its file system does not.
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: v.Size, NodeExpansionRequired: true}, nil
}

// ControllerModifyVolume changes a volume's tunables; what is not named stays.
func (c *Controller) ControllerModifyVolume(ctx context.Context, r *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	e, id, err := c.find(r.GetVolumeId(), "volume_id")
	if err != nil {
		return nil, asStatus(err)
	}
	changes, err := tunablesOf(r.GetMutableParameters())
	if err != nil {
		return nil, asStatus(err)
	}
	v, err := e.Volume(ctx, id.Object)
	if err != nil {
		return nil, asStatus(err)
	}
	if err := e.mayTune(ctx, v, changes); err != nil {
		return nil, asStatus(err)
	}
	if v, err = e.TuneVolume(ctx, id.Object, tunable.Merge(v.Tunables, changes)); err != nil {
		return nil, asStatus(err)
	}
	if c.Told.Tuned != nil {
		c.Told.Tuned(r.GetVolumeId(), v.Generation, v.Tunables)
	}
	return &csi.ControllerModifyVolumeResponse{}, nil
}

// mayTune refuses what a node that has the volume could not follow.
func (e *entry) mayTune(ctx context.Context, v backend.Volume, changes map[string]string) error {
	used, _, err := e.Publications(ctx, backend.PublicationFilter{Volume: v.ID}, backend.Page{Max: 1})
	if err != nil {
		return err
	}
	if len(used) > 0 {
		err = tunable.CheckChange(v.Tunables, changes)
	}
	if err == nil {
		_, err = tunable.Parse(tunable.Merge(v.Tunables, changes))
	}
	if err != nil {
		return refuse("%w", err)
	}
	return nil
}

// ValidateVolumeCapabilities says whether a volume can be used so.
func (c *Controller) ValidateVolumeCapabilities(ctx context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if r.GetVolumeId() == "" {
		return nil, missing("volume_id")
	}
	if len(r.GetVolumeCapabilities()) == 0 {
		return nil, missing("volume_capabilities")
	}
	if !attrs.IsStatic(r.GetVolumeContext()) {
		e, id, err := c.find(r.GetVolumeId(), "volume_id")
		if err == nil {
			_, err = e.Volume(ctx, id.Object)
		}
		if err != nil {
			return nil, asStatus(err)
		}
	}
	if why := unusable(r); why != "" {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: why}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: r.GetVolumeContext(), VolumeCapabilities: r.GetVolumeCapabilities(), Parameters: r.GetParameters(), MutableParameters: r.GetMutableParameters()}}, nil
}

// unusable is why a volume cannot be used so; empty: it can.
func unusable(r *csi.ValidateVolumeCapabilitiesRequest) string {
	_, err := attrs.ParseClass(r.GetParameters())
	if err = errors.Join(err, checkAccess(r.GetVolumeCapabilities())); err != nil {
		return err.Error()
	}
	return ""
}
