package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Lists go through the backends in the order of their configuration. A token is
// the name of a backend and its own token. A backend that does not answer ends
// the list with its error: what is missing would be taken for gone.

// everything is a whole list.
func everything[T any](list func(backend.Page) ([]T, string, error)) ([]T, error) {
	var all []T
	for page := (backend.Page{}); ; {
		some, next, err := list(page)
		all = append(all, some...)
		if err != nil || next == "" {
			return all, err
		}
		page.Token = next
	}
}

// listed is one page over several backends.
func listed[T any](s *estate, token string, most int32, list func(*entry, backend.Page) ([]T, string, error)) (out []T, next string, err error) {
	if most < 0 {
		return nil, "", status.Errorf(codes.InvalidArgument, "max_entries %d: want 0 or more", most)
	}
	left := maxEntries
	if most > 0 && int(most) < left {
		left = int(most)
	}
	at, inner, err := s.position(token)
	for ; err == nil && at < len(s.entries); at, inner = at+1, "" {
		e := s.entries[at]
		for {
			if left == 0 {
				return out, e.cfg.Name + ":" + inner, nil
			}
			some, more, err := list(e, backend.Page{Token: inner, Max: left})
			if err != nil {
				return nil, "", fmt.Errorf("backend %s: %w", e.cfg.Name, err)
			}
			out, left, inner = append(out, some...), left-len(some), more
			if more == "" {
				break
			}
		}
	}
	return out, "", err
}

// position reads a token.
func (s *estate) position(token string) (at int, inner string, err error) {
	if token == "" {
		return 0, "", nil
	}
	name, inner, ok := strings.Cut(token, ":")
	for i, e := range s.entries {
		if ok && e.cfg.Name == name {
			return i, inner, nil
		}
	}
	return 0, "", fmt.Errorf("%w: begin the list again", backend.ErrToken)
}

// ListVolumes lists the volumes of all backends, and who has them.
func (c *Controller) ListVolumes(ctx context.Context, r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	var of *entry
	var nodes map[backend.ID][]string
	all, static := c.withStatic()
	entries, next, err := listed(all, r.GetStartingToken(), r.GetMaxEntries(), func(e *entry, p backend.Page) ([]*csi.ListVolumesResponse_Entry, string, error) {
		if e == static {
			return c.staticPage(ctx, p)
		}
		some, more, err := e.Volumes(ctx, p)
		if err == nil && of != e {
			of = e
			nodes, err = e.users(ctx, backend.PublicationFilter{})
		}
		var out []*csi.ListVolumesResponse_Entry
		for _, v := range some {
			out = append(out, &csi.ListVolumesResponse_Entry{Volume: e.volumeOf(v, nil), Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: nodes[v.ID]}})
		}
		return out, more, err
	})
	if err != nil {
		return nil, asStatus(err)
	}
	return &csi.ListVolumesResponse{Entries: entries, NextToken: next}, nil
}

// users are the nodes of volumes.
func (e *entry) users(ctx context.Context, f backend.PublicationFilter) (map[backend.ID][]string, error) {
	all, err := everything(func(p backend.Page) ([]backend.Publication, string, error) { return e.Publications(ctx, f, p) })
	out := map[backend.ID][]string{}
	for _, p := range all {
		out[p.Volume] = append(out[p.Volume], p.Node)
	}
	return out, err
}

// ControllerGetVolume finds a volume, and who has it.
func (c *Controller) ControllerGetVolume(ctx context.Context, r *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	e, id, err := c.find(r.GetVolumeId(), "volume_id")
	if errors.Is(err, errNoSuch) {
		return c.oneStatic(ctx, r.GetVolumeId(), err)
	}
	if err != nil {
		return nil, asStatus(err)
	}
	v, err := e.Volume(ctx, id.Object)
	if err != nil {
		return nil, asStatus(err)
	}
	nodes, err := e.users(ctx, backend.PublicationFilter{Volume: id.Object})
	if err != nil {
		return nil, asStatus(err)
	}
	return &csi.ControllerGetVolumeResponse{Volume: e.volumeOf(v, nil), Status: &csi.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: nodes[v.ID]}}, nil
}

// ListSnapshots lists the snapshots of all backends, of one volume, or one.
func (c *Controller) ListSnapshots(ctx context.Context, r *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	if handle := r.GetSnapshotId(); handle != "" {
		return c.oneSnapshot(ctx, handle, r.GetSourceVolumeId())
	}
	var only *entry
	var of backend.ID
	if handle := r.GetSourceVolumeId(); handle != "" {
		e, id, err := c.find(handle, "source_volume_id")
		if errors.Is(err, errNoSuch) {
			return &csi.ListSnapshotsResponse{}, nil
		}
		if err != nil {
			return nil, asStatus(err)
		}
		only, of = e, id.Object
	}
	entries, next, err := listed(c.Backends.current.Load(), r.GetStartingToken(), r.GetMaxEntries(), func(e *entry, p backend.Page) ([]*csi.ListSnapshotsResponse_Entry, string, error) {
		if only != nil && e != only {
			return nil, "", nil
		}
		some, more, err := e.Snapshots(ctx, of, p)
		var out []*csi.ListSnapshotsResponse_Entry
		for _, s := range some {
			out = append(out, &csi.ListSnapshotsResponse_Entry{Snapshot: e.snapshotOf(s)})
		}
		return out, more, err
	})
	if err != nil {
		return nil, asStatus(err)
	}
	return &csi.ListSnapshotsResponse{Entries: entries, NextToken: next}, nil
}

// oneSnapshot is a list of one, or of none.
func (c *Controller) oneSnapshot(ctx context.Context, handle, of string) (*csi.ListSnapshotsResponse, error) {
	s, err := c.snapshot(ctx, handle)
	switch {
	case errors.Is(err, errNoSuch), errors.Is(err, backend.ErrNotFound):
		return &csi.ListSnapshotsResponse{}, nil
	case err != nil:
		return nil, asStatus(err)
	case of != "" && of != s.SourceVolumeId:
		return &csi.ListSnapshotsResponse{}, nil
	}
	return &csi.ListSnapshotsResponse{Entries: []*csi.ListSnapshotsResponse_Entry{{Snapshot: s}}}, nil
}
