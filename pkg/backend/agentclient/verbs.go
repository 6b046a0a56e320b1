package agentclient

import (
	"context"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/agent/agentpb"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// The verbs. Requests are checked before they are sent: what is no UTF-8 could not
// be, and the answer needs no agent.

// Info says what the agent is and can.
func (c *Client) Info(ctx context.Context) (backend.Info, error) {
	m, err := call(ctx, c.rpc.GetInfo, &agentpb.GetInfoRequest{})
	if err != nil {
		return backend.Info{}, err
	}
	v, err := m.Backend()
	return believe(c, v, err)
}

// Health is how the agent is.
type Health struct {
	Ready    bool
	Version  string
	Started  time.Time
	Problems []string // for people
}

// Health asks how the agent is.
func (c *Client) Health(ctx context.Context) (Health, error) {
	m, err := call(ctx, c.rpc.GetHealth, &agentpb.GetHealthRequest{})
	if err != nil {
		return Health{}, err
	}
	return Health{Ready: m.GetReady(), Version: m.GetVersion(), Started: m.GetStarted().Backend(), Problems: m.GetProblems()}, nil
}

// volume makes a call that a volume answers.
func volume[Q any](ctx context.Context, c *Client, v verb[Q, agentpb.Volume], q *Q) (backend.Volume, error) {
	m, err := call(ctx, v, q)
	if err != nil {
		return backend.Volume{}, err
	}
	vol, err := m.Backend()
	return believe(c, vol, err)
}

// snapshot makes a call that a snapshot answers.
func snapshot[Q any](ctx context.Context, c *Client, v verb[Q, agentpb.Snapshot], q *Q) (backend.Snapshot, error) {
	m, err := call(ctx, v, q)
	if err != nil {
		return backend.Snapshot{}, err
	}
	snap, err := m.Backend()
	return believe(c, snap, err)
}

// CreateVolume makes a volume, or finds it.
func (c *Client) CreateVolume(ctx context.Context, r backend.CreateVolume) (backend.Volume, error) {
	if err := r.Check(); err != nil {
		return backend.Volume{}, err
	}
	return volume(ctx, c, c.rpc.CreateVolume, agentpb.FromCreateVolume(r))
}

// Volume finds a volume.
func (c *Client) Volume(ctx context.Context, id backend.ID) (backend.Volume, error) {
	if err := id.Check(); err != nil {
		return backend.Volume{}, err
	}
	return volume(ctx, c, c.rpc.GetVolume, &agentpb.GetVolumeRequest{Id: agentpb.FromID(id)})
}

// DeleteVolume removes a volume.
func (c *Client) DeleteVolume(ctx context.Context, id backend.ID) error {
	if err := id.Check(); err != nil {
		return err
	}
	_, err := call(ctx, c.rpc.DeleteVolume, &agentpb.DeleteVolumeRequest{Id: agentpb.FromID(id)})
	return err
}

// ExpandVolume makes a volume larger.
func (c *Client) ExpandVolume(ctx context.Context, id backend.ID, size backend.Size) (backend.Volume, error) {
	m := &agentpb.ExpandVolumeRequest{Id: agentpb.FromID(id), Size: agentpb.FromSize(size)}
	if _, _, err := m.Backend(); err != nil {
		return backend.Volume{}, err
	}
	return volume(ctx, c, c.rpc.ExpandVolume, m)
}

// TuneVolume replaces a volume's tunables.
func (c *Client) TuneVolume(ctx context.Context, id backend.ID, tunables map[string]string) (backend.Volume, error) {
	m := &agentpb.TuneVolumeRequest{Id: agentpb.FromID(id), Tunables: tunables}
	if _, _, err := m.Backend(); err != nil {
		return backend.Volume{}, err
	}
	return volume(ctx, c, c.rpc.TuneVolume, m)
}

// Volumes lists volumes.
func (c *Client) Volumes(ctx context.Context, page backend.Page) ([]backend.Volume, string, error) {
	p, err := agentpb.FromPage(page)
	if err != nil {
		return nil, "", err
	}
	m, err := call(ctx, c.rpc.ListVolumes, &agentpb.ListVolumesRequest{Page: p})
	if err != nil {
		return nil, "", err
	}
	all, next, err := m.Backend()
	return list(c, all, next, err)
}

// CreateSnapshot makes a snapshot, or finds it.
func (c *Client) CreateSnapshot(ctx context.Context, r backend.CreateSnapshot) (backend.Snapshot, error) {
	if err := r.Check(); err != nil {
		return backend.Snapshot{}, err
	}
	return snapshot(ctx, c, c.rpc.CreateSnapshot, agentpb.FromCreateSnapshot(r))
}

// Snapshot finds a snapshot.
func (c *Client) Snapshot(ctx context.Context, id backend.ID) (backend.Snapshot, error) {
	if err := id.Check(); err != nil {
		return backend.Snapshot{}, err
	}
	return snapshot(ctx, c, c.rpc.GetSnapshot, &agentpb.GetSnapshotRequest{Id: agentpb.FromID(id)})
}

// DeleteSnapshot removes a snapshot.
func (c *Client) DeleteSnapshot(ctx context.Context, id backend.ID) error {
	if err := id.Check(); err != nil {
		return err
	}
	_, err := call(ctx, c.rpc.DeleteSnapshot, &agentpb.DeleteSnapshotRequest{Id: agentpb.FromID(id)})
	return err
}

// Snapshots lists snapshots.
func (c *Client) Snapshots(ctx context.Context, of backend.ID, page backend.Page) ([]backend.Snapshot, string, error) {
	p, err := agentpb.FromPage(page)
	if err != nil {
		return nil, "", err
	}
	q := &agentpb.ListSnapshotsRequest{Of: agentpb.FromID(of), Page: p}
	if _, _, err := q.Backend(); err != nil {
		return nil, "", err
	}
	m, err := call(ctx, c.rpc.ListSnapshots, q)
	if err != nil {
		return nil, "", err
	}
	all, next, err := m.Backend()
	return list(c, all, next, err)
}

// Capacity is what a pool has room for.
func (c *Client) Capacity(ctx context.Context, pool string) (backend.Capacity, error) {
	if err := backend.CheckPool(pool); err != nil {
		return backend.Capacity{}, err
	}
	m, err := call(ctx, c.rpc.GetCapacity, &agentpb.GetCapacityRequest{Pool: pool})
	if err != nil {
		return backend.Capacity{}, err
	}
	return m.Backend(), nil
}

// Publish gives a node access.
func (c *Client) Publish(ctx context.Context, r backend.Publish) (backend.Connection, error) {
	q, err := agentpb.FromPublish(r)
	if err != nil {
		return backend.Connection{}, err
	}
	m, err := call(ctx, c.rpc.Publish, q)
	if err != nil {
		return backend.Connection{}, err
	}
	v, err := m.Backend()
	return believe(c, v, err)
}

// Unpublish takes it away (I9).
func (c *Client) Unpublish(ctx context.Context, id backend.ID, node string) error {
	m := &agentpb.UnpublishRequest{Volume: agentpb.FromID(id), Node: node}
	if _, _, err := m.Backend(); err != nil {
		return err
	}
	_, err := call(ctx, c.rpc.Unpublish, m)
	return err
}

// Publications lists who has access.
func (c *Client) Publications(ctx context.Context, f backend.PublicationFilter, page backend.Page) ([]backend.Publication, string, error) {
	p, err := agentpb.FromPage(page)
	if err != nil {
		return nil, "", err
	}
	q := agentpb.FromFilter(f, p)
	if _, _, err := q.Backend(); err != nil {
		return nil, "", err
	}
	m, err := call(ctx, c.rpc.ListPublications, q)
	if err != nil {
		return nil, "", err
	}
	all, next, err := m.Backend()
	return list(c, all, next, err)
}

// Fence unpublishes all volumes of a node, and refuses it.
func (c *Client) Fence(ctx context.Context, node string) error {
	if err := backend.CheckNode(node); err != nil {
		return err
	}
	_, err := call(ctx, c.rpc.Fence, &agentpb.FenceRequest{Node: node})
	return err
}

// Unfence lets a node in again.
func (c *Client) Unfence(ctx context.Context, node string) error {
	if err := backend.CheckNode(node); err != nil {
		return err
	}
	_, err := call(ctx, c.rpc.Unfence, &agentpb.UnfenceRequest{Node: node})
	return err
}

// Fenced lists the nodes that are refused.
func (c *Client) Fenced(ctx context.Context) ([]string, error) {
	m, err := call(ctx, c.rpc.ListFenced, &agentpb.ListFencedRequest{})
	if err != nil {
		return nil, err
	}
	return m.GetNodes(), nil
}
