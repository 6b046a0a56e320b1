package agent

import (
	"context"

	"github.com/csi-mpath/csi-mpath/pkg/agent/agentpb"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// The verbs: check, ask the tenant's backend, convert. Errors become statuses in
// call.go.

// GetInfo says what the backend is.
func (s *Server) GetInfo(ctx context.Context, _ *agentpb.GetInfoRequest) (*agentpb.Info, error) {
	i, err := storage(ctx).Info(ctx)
	return agentpb.FromInfo(i), err
}

// GetHealth says whether storage answers, and what is wrong with it.
func (s *Server) GetHealth(ctx context.Context, _ *agentpb.GetHealthRequest) (*agentpb.Health, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	h := &agentpb.Health{Ready: true, Version: s.cfg.Version, Started: agentpb.FromTime(s.started)}
	if _, err := storage(ctx).Info(ctx); err != nil {
		h.Ready, h.Problems = false, append(h.Problems, err.Error())
	}
	if s.cfg.Problems != nil {
		h.Problems = append(h.Problems, s.cfg.Problems(ctx)...)
	}
	return h, nil
}

// answer converts what a backend said, unless it is an error.
func answer[T any, M any](v T, err error, to func(T) *M) (*M, error) {
	if err != nil {
		return nil, err
	}
	return to(v), nil
}

// CreateVolume makes a volume.
func (s *Server) CreateVolume(ctx context.Context, m *agentpb.CreateVolumeRequest) (*agentpb.Volume, error) {
	r, err := m.Backend()
	if err != nil {
		return nil, err
	}
	v, err := storage(ctx).CreateVolume(ctx, r)
	return answer(v, err, agentpb.FromVolume)
}

// GetVolume finds a volume.
func (s *Server) GetVolume(ctx context.Context, m *agentpb.GetVolumeRequest) (*agentpb.Volume, error) {
	id, err := m.Backend()
	if err != nil {
		return nil, err
	}
	v, err := storage(ctx).Volume(ctx, id)
	return answer(v, err, agentpb.FromVolume)
}

// DeleteVolume removes a volume.
func (s *Server) DeleteVolume(ctx context.Context, m *agentpb.DeleteVolumeRequest) (*agentpb.DeleteVolumeReply, error) {
	id, err := m.Backend()
	if err != nil {
		return nil, err
	}
	return &agentpb.DeleteVolumeReply{}, storage(ctx).DeleteVolume(ctx, id)
}

// ExpandVolume makes a volume larger.
func (s *Server) ExpandVolume(ctx context.Context, m *agentpb.ExpandVolumeRequest) (*agentpb.Volume, error) {
	id, size, err := m.Backend()
	if err != nil {
		return nil, err
	}
	v, err := storage(ctx).ExpandVolume(ctx, id, size)
	return answer(v, err, agentpb.FromVolume)
}

// TuneVolume replaces a volume's tunables.
func (s *Server) TuneVolume(ctx context.Context, m *agentpb.TuneVolumeRequest) (*agentpb.Volume, error) {
	id, tunables, err := m.Backend()
	if err != nil {
		return nil, err
	}
	v, err := storage(ctx).TuneVolume(ctx, id, tunables)
	return answer(v, err, agentpb.FromVolume)
}

// ListVolumes lists volumes.
func (s *Server) ListVolumes(ctx context.Context, m *agentpb.ListVolumesRequest) (*agentpb.ListVolumesReply, error) {
	all, next, err := storage(ctx).Volumes(ctx, m.GetPage().Backend())
	if err != nil {
		return nil, err
	}
	return agentpb.FromVolumes(all, next), nil
}

// CreateSnapshot makes a snapshot.
func (s *Server) CreateSnapshot(ctx context.Context, m *agentpb.CreateSnapshotRequest) (*agentpb.Snapshot, error) {
	r, err := m.Backend()
	if err != nil {
		return nil, err
	}
	v, err := storage(ctx).CreateSnapshot(ctx, r)
	return answer(v, err, agentpb.FromSnapshot)
}

// GetSnapshot finds a snapshot.
func (s *Server) GetSnapshot(ctx context.Context, m *agentpb.GetSnapshotRequest) (*agentpb.Snapshot, error) {
	id, err := m.Backend()
	if err != nil {
		return nil, err
	}
	v, err := storage(ctx).Snapshot(ctx, id)
	return answer(v, err, agentpb.FromSnapshot)
}

// DeleteSnapshot removes a snapshot.
func (s *Server) DeleteSnapshot(ctx context.Context, m *agentpb.DeleteSnapshotRequest) (*agentpb.DeleteSnapshotReply, error) {
	id, err := m.Backend()
	if err != nil {
		return nil, err
	}
	return &agentpb.DeleteSnapshotReply{}, storage(ctx).DeleteSnapshot(ctx, id)
}

// ListSnapshots lists snapshots.
func (s *Server) ListSnapshots(ctx context.Context, m *agentpb.ListSnapshotsRequest) (*agentpb.ListSnapshotsReply, error) {
	of, page, err := m.Backend()
	if err != nil {
		return nil, err
	}
	all, next, err := storage(ctx).Snapshots(ctx, of, page)
	if err != nil {
		return nil, err
	}
	return agentpb.FromSnapshots(all, next), nil
}

// GetCapacity is what a pool has room for.
func (s *Server) GetCapacity(ctx context.Context, m *agentpb.GetCapacityRequest) (*agentpb.Capacity, error) {
	pool, err := m.Backend()
	if err != nil {
		return nil, err
	}
	c, err := storage(ctx).Capacity(ctx, pool)
	return answer(c, err, agentpb.FromCapacity)
}

// Publish gives a node access.
func (s *Server) Publish(ctx context.Context, m *agentpb.PublishRequest) (*agentpb.Connection, error) {
	r, err := m.Backend()
	if err != nil {
		return nil, err
	}
	c, err := storage(ctx).Publish(ctx, r)
	return answer(c, err, agentpb.FromConnection)
}

// Unpublish takes it away (I9).
func (s *Server) Unpublish(ctx context.Context, m *agentpb.UnpublishRequest) (*agentpb.UnpublishReply, error) {
	id, node, err := m.Backend()
	if err != nil {
		return nil, err
	}
	return &agentpb.UnpublishReply{}, storage(ctx).Unpublish(ctx, id, node)
}

// ListPublications lists who has access.
func (s *Server) ListPublications(ctx context.Context, m *agentpb.ListPublicationsRequest) (*agentpb.ListPublicationsReply, error) {
	f, page, err := m.Backend()
	if err != nil {
		return nil, err
	}
	all, next, err := storage(ctx).Publications(ctx, f, page)
	if err != nil {
		return nil, err
	}
	return agentpb.FromPublications(all, next), nil
}

// Fence unpublishes all volumes of a node, and refuses it.
func (s *Server) Fence(ctx context.Context, m *agentpb.FenceRequest) (*agentpb.FenceReply, error) {
	node, err := m.Backend()
	if err != nil {
		return nil, err
	}
	return &agentpb.FenceReply{}, storage(ctx).Fence(ctx, node)
}

// Unfence lets a node in again.
func (s *Server) Unfence(ctx context.Context, m *agentpb.UnfenceRequest) (*agentpb.UnfenceReply, error) {
	node, err := m.Backend()
	if err != nil {
		return nil, err
	}
	return &agentpb.UnfenceReply{}, storage(ctx).Unfence(ctx, node)
}

// ListFenced lists the nodes that are refused.
func (s *Server) ListFenced(ctx context.Context, _ *agentpb.ListFencedRequest) (*agentpb.ListFencedReply, error) {
	nodes, err := storage(ctx).Fenced(ctx)
	return &agentpb.ListFencedReply{Nodes: nodes}, err
}

// WatchEvents sends events until the client or the server ends it. A client that
// reads slowly holds up only its own: its backend tells it what it lost.
func (s *Server) WatchEvents(_ *agentpb.WatchEventsRequest, stream agentpb.Agent_WatchEventsServer) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	go func() {
		select {
		case <-s.stopping:
			cancel(errStopping)
		case <-ctx.Done():
		}
	}()
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	err := storage(ctx).Watch(ctx, func(e backend.Event) {
		if err := stream.Send(agentpb.FromEvent(e)); err != nil {
			cancel(err)
		}
	})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
