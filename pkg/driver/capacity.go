package driver

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// GetCapacity is what there is room for, in the backend and pool that are asked
// for, or in all.
func (c *Controller) GetCapacity(ctx context.Context, r *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	class, err := attrs.ParseClass(r.GetParameters())
	if err != nil {
		return nil, asStatus(err)
	}
	if len(r.GetVolumeCapabilities()) > 0 {
		if err := checkAccess(r.GetVolumeCapabilities()); err != nil {
			return nil, asStatus(err)
		}
	}
	var sum backend.Capacity
	for _, e := range c.Backends.current.Load().entries {
		if (class.Backend != "" && e.cfg.Name != class.Backend) || (r.GetAccessibleTopology() != nil && !e.reachedFrom(r.GetAccessibleTopology())) {
			continue
		}
		if err := e.add(ctx, &sum, class); err != nil {
			return nil, asStatus(fmt.Errorf("backend %s: %w", e.cfg.Name, err))
		}
	}
	return &csi.GetCapacityResponse{AvailableCapacity: sum.Available, MaximumVolumeSize: wrapperspb.Int64(sum.MaxVolume),
		MinimumVolumeSize: wrapperspb.Int64(sum.MinVolume)}, nil
}

// add adds up the pools of a backend that a class may mean.
func (e *entry) add(ctx context.Context, sum *backend.Capacity, class attrs.Class) error {
	info, err := e.Info(ctx)
	if err != nil {
		return err
	}
	for _, p := range info.Pools {
		if class.Pool != "" && p.Name != class.Pool {
			continue
		}
		room, err := e.Capacity(ctx, p.Name)
		if err != nil {
			return err
		}
		sum.Available += room.Available
		sum.MaxVolume = max(sum.MaxVolume, room.MaxVolume)
		if sum.MinVolume == 0 || room.MinVolume < sum.MinVolume {
			sum.MinVolume = room.MinVolume
		}
	}
	return nil
}
