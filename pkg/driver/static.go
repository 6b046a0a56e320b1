package driver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Static volumes are at no backend: that nodes have them is known to the cluster
// alone. Whoever compares attachments with a list of volumes would take one that is
// missing there for detached.

// staticName is where they are in a list: no backend can be called so.
const staticName = "*"

// withStatic is what there is to list, with them at its end if they can be known.
func (c *Controller) withStatic() (all *estate, static *entry) {
	all = c.Backends.current.Load()
	if c.Static == nil {
		return all, nil
	}
	static = &entry{cfg: BackendConfig{Name: staticName}}
	return &estate{cfg: all.cfg, entries: append(slices.Clone(all.entries), static)}, static
}

// static are those that nodes have.
func (c *Controller) static(ctx context.Context) ([]StaticVolume, error) {
	if c.Static == nil {
		return nil, nil
	}
	all, err := c.Static(ctx)
	if err != nil {
		return nil, fmt.Errorf("static volumes: %w: %w", backend.ErrUnavailable, err)
	}
	return all, nil
}

// staticPage are those after a token, which is a handle.
func (c *Controller) staticPage(ctx context.Context, p backend.Page) (out []*csi.ListVolumesResponse_Entry, next string, err error) {
	all, err := c.static(ctx)
	for _, v := range all {
		if v.Handle <= p.Token {
			continue
		}
		if p.Max > 0 && len(out) == p.Max {
			return out, out[len(out)-1].Volume.VolumeId, nil
		}
		out = append(out, &csi.ListVolumesResponse_Entry{Volume: v.volume(), Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: v.Nodes}})
	}
	return out, "", err
}

// oneStatic is one of them; nobody has one that is not there.
func (c *Controller) oneStatic(ctx context.Context, handle string, none error) (*csi.ControllerGetVolumeResponse, error) {
	all, err := c.static(ctx)
	if err != nil {
		return nil, asStatus(err)
	}
	i, is := slices.BinarySearchFunc(all, handle, func(v StaticVolume, h string) int { return strings.Compare(v.Handle, h) })
	if !is {
		return nil, asStatus(none)
	}
	return &csi.ControllerGetVolumeResponse{Volume: all[i].volume(), Status: &csi.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: all[i].Nodes}}, nil
}

func (v StaticVolume) volume() *csi.Volume {
	return &csi.Volume{VolumeId: v.Handle, CapacityBytes: v.Size}
}
