package driver

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// ControllerPublishVolume gives a node access.
func (c *Controller) ControllerPublishVolume(ctx context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if r.GetVolumeId() == "" {
		return nil, missing("volume_id")
	}
	if r.GetNodeId() == "" {
		return nil, missing("node_id")
	}
	a, err := accessOf(r.GetVolumeCapability())
	if err != nil {
		return nil, asStatus(err)
	}
	to, err := c.attach(ctx, r, a)
	if err != nil {
		return nil, asStatus(err)
	}
	out, err := attrs.PublishContext(to)
	if err != nil {
		return nil, asStatus(err)
	}
	if c.Told.Published != nil {
		c.Told.Published(r.GetVolumeId(), r.GetNodeId(), to)
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: out}, nil
}

// attach is what the node needs to know.
func (c *Controller) attach(ctx context.Context, r *csi.ControllerPublishVolumeRequest, a access) (attrs.Attachment, error) {
	if attrs.IsStatic(r.GetVolumeContext()) {
		to, err := attrs.ParseStatic(r.GetVolumeContext())
		to.ReadOnly = to.ReadOnly || a.readOnly || r.GetReadonly()
		return to, errors.Join(err, c.known(ctx, r.GetNodeId()))
	}
	e, id, err := c.find(r.GetVolumeId(), "volume_id")
	if err != nil {
		return attrs.Attachment{}, err
	}
	if _, err := e.Volume(ctx, id.Object); err != nil {
		return attrs.Attachment{}, err
	}
	if err := c.known(ctx, r.GetNodeId()); err != nil {
		return attrs.Attachment{}, err
	}
	ask, err := c.publication(ctx, e, id, r, a)
	if err != nil {
		return attrs.Attachment{}, err
	}
	if a.oneWriter && !ask.ReadOnly {
		if err := e.noOtherWriter(ctx, ask); err != nil {
			return attrs.Attachment{}, err
		}
	}
	conn, err := e.Publish(ctx, ask)
	if err != nil {
		return attrs.Attachment{}, err
	}
	to := attrs.FromConnection(conn)
	to.CHAP = ask.Auth != backend.Auth{}
	return to, nil
}

// known refuses a node that the cluster does not have: it may be one that was
// removed, whose access would never end.
func (c *Controller) known(ctx context.Context, node string) error {
	if cfg := &c.Backends.current.Load().cfg; cfg.OnlyNodes {
		if _, there := cfg.Nodes[node]; !there {
			return fmt.Errorf("node %s: not among nodes of the configuration, which has onlyNodes: %w", node, backend.ErrNotFound)
		}
	}
	if c.HasNode == nil {
		return nil
	}
	there, err := c.HasNode(ctx, node)
	if err != nil {
		return fmt.Errorf("node %s: %w: %w", node, backend.ErrUnavailable, err)
	}
	if !there {
		return fmt.Errorf("node %s: %w", node, backend.ErrNotFound)
	}
	return nil
}

// publication is what the backend is asked for.
func (c *Controller) publication(ctx context.Context, e *entry, id attrs.ID, r *csi.ControllerPublishVolumeRequest, a access) (backend.Publish, error) {
	traits, err := attrs.ParseVolumeContext(r.GetVolumeContext())
	if err != nil {
		return backend.Publish{}, err
	}
	pool, err := e.pool(ctx, id.Object.Pool)
	if err != nil {
		return backend.Publish{}, err
	}
	t, err := transport(traits.Transport, pool)
	if err != nil {
		return backend.Publish{}, err
	}
	auth, err := attrs.Auth(t, r.GetSecrets())
	cfg := &c.Backends.current.Load().cfg
	return backend.Publish{Volume: id.Object, Node: r.GetNodeId(), Initiator: cfg.initiator(t, r.GetNodeId()), Transport: t,
		ReadOnly: a.readOnly || r.GetReadonly(), Shared: a.shared, Auth: auth}, err
}

// noOtherWriter looks for one: backends know how many nodes have a volume, not how
// many of them write.
func (e *entry) noOtherWriter(ctx context.Context, ask backend.Publish) error {
	all, err := everything(func(p backend.Page) ([]backend.Publication, string, error) {
		return e.Publications(ctx, backend.PublicationFilter{Volume: ask.Volume}, p)
	})
	for _, p := range all {
		if p.Node != ask.Node && !p.ReadOnly {
			return &backend.InUse{Object: "volume " + ask.Volume.String(), Node: p.Node, Why: "it writes, and one node may"}
		}
	}
	return err
}

// ControllerUnpublishVolume ends a node's access, or, without a node, everybody's.
// It returns when nothing of theirs can change the volume any more (I9).
func (c *Controller) ControllerUnpublishVolume(ctx context.Context, r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	e, id, err := c.find(r.GetVolumeId(), "volume_id")
	if errors.Is(err, errNoSuch) { // a static volume, or none
		c.unpublished(r)
		return &csi.ControllerUnpublishVolumeResponse{}, nil
	}
	if err == nil {
		err = e.Unpublish(ctx, id.Object, r.GetNodeId())
	}
	if err != nil {
		return nil, asStatus(err)
	}
	c.unpublished(r)
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// unpublished tells of the end of a publication, which is over.
func (c *Controller) unpublished(r *csi.ControllerUnpublishVolumeRequest) {
	if c.Told.Unpublished != nil {
		c.Told.Unpublished(r.GetVolumeId(), r.GetNodeId())
	}
}
