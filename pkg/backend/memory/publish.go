package memory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Publish gives a node access.
func (v *view) Publish(ctx context.Context, r backend.Publish) (backend.Connection, error) {
	end, err := v.begin(ctx)
	if err != nil {
		return backend.Connection{}, err
	}
	defer end()
	if err := r.Check(); err != nil {
		return backend.Connection{}, err
	}
	vol, err := v.volume(r.Volume)
	if err == nil {
		err = v.mayPublish(vol, r)
	}
	if err != nil {
		return backend.Connection{}, errors.Join(err, v.notFenced(r.Node))
	}
	if err := v.notFenced(r.Node); err != nil {
		return backend.Connection{}, err
	}
	p := vol.nodes[r.Node]
	if p == nil {
		epoch := random(8)
		p = &publication{Publication: backend.Publication{
			Volume: r.Volume, Node: r.Node, Transport: r.Transport, Initiator: r.Initiator + ":" + epoch,
			Epoch: epoch, ReadOnly: r.ReadOnly, Shared: r.Shared,
		}}
		vol.nodes[r.Node] = p
	}
	p.asked = r
	c := v.s.connection(vol, p)
	if !r.ReadOnly && vol.Content == backend.ContentBlank {
		vol.Content = backend.ContentUnknown // the node may write from now on
	}
	return c, nil
}

// notFenced is ErrFenced for a node that is.
func (v *view) notFenced(node string) error {
	if v.s.fenced[host{v.tenant, node}] {
		return fmt.Errorf("node %s: %w", node, backend.ErrFenced)
	}
	return nil
}

// mayPublish is all that is against a publication.
func (v *view) mayPublish(vol *volume, r backend.Publish) error {
	var why []error
	pool, err := v.s.pool(vol.ID.Pool)
	if err != nil || !slices.Contains(pool.Transports, r.Transport) {
		why = append(why, fmt.Errorf("pool %s over %s: %w", vol.ID.Pool, r.Transport, backend.ErrUnsupported))
	}
	for _, p := range vol.some("") {
		was := p.asked
		was.Auth = r.Auth
		switch {
		case p.Node == r.Node && was != r:
			why = append(why, fmt.Errorf("volume %s has been published to node %s otherwise: %w", vol.ID, r.Node, backend.ErrConflict))
		case p.Node == r.Node:
		case !p.Shared || !r.Shared:
			why = append(why, &backend.InUse{Object: "volume " + vol.ID.String(), Node: p.Node, Why: "not shared"})
		case p.Transport != r.Transport:
			why = append(why, &backend.InUse{Object: "volume " + vol.ID.String(), Node: p.Node, Why: "over " + string(p.Transport)})
		}
	}
	return errors.Join(why...)
}

// connection is what the node gets to know.
func (s *Storage) connection(vol *volume, p *publication) backend.Connection {
	c := backend.Connection{
		Transport: p.Transport, Target: "iqn.2025-01.io.csi-mpath:memory:" + vol.Identity,
		Portals: slices.Clone(s.cfg.Portals[p.Transport]), WWID: "36001405" + vol.Identity[:25],
		Initiator: p.Initiator, Epoch: p.Epoch, Size: vol.Size, ReadOnly: p.ReadOnly, Content: vol.Content,
		Tunables: maps.Clone(vol.Tunables), Generation: vol.Generation,
	}
	if p.Transport == backend.NVMe {
		c.Target, c.WWID = "nqn"+c.Target[3:], "uuid."+vol.Identity
		c.NSID, c.HostID = 1, p.Epoch+p.Epoch
	}
	return c
}

// Unpublish ends a node's access, or every node's.
func (v *view) Unpublish(ctx context.Context, id backend.ID, node string) error {
	end, err := v.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	vol, err := v.volume(id)
	if err != nil {
		return absent(err)
	}
	for _, p := range vol.some(node) {
		delete(vol.nodes, p.Node)
	}
	return nil
}

// Publications lists who has what.
func (v *view) Publications(ctx context.Context, f backend.PublicationFilter, page backend.Page) ([]backend.Publication, string, error) {
	end, err := v.begin(ctx)
	if err != nil {
		return nil, "", err
	}
	defer end()
	var all []backend.Publication
	for _, vol := range v.mine() {
		if !f.Volume.IsZero() && f.Volume != vol.ID {
			continue
		}
		for _, p := range vol.some(f.Node) {
			all = append(all, p.Publication)
		}
	}
	key := func(p backend.Publication) backend.Key { return backend.Key{ID: p.Volume, Node: p.Node} }
	return backend.Cut(all, key, page)
}

// Fence ends all access of a node, and refuses it from now on.
func (v *view) Fence(ctx context.Context, node string) error {
	end, err := v.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := backend.CheckNode(node); err != nil {
		return err
	}
	v.s.fenced[host{v.tenant, node}] = true
	for _, vol := range v.mine() {
		delete(vol.nodes, node)
	}
	v.s.tell(v.tenant, backend.Event{Kind: backend.NodeFenced, Node: node, Warning: true, Message: "node " + node + " was fenced"})
	return nil
}

// Unfence lets a node have volumes again.
func (v *view) Unfence(ctx context.Context, node string) error {
	end, err := v.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	delete(v.s.fenced, host{v.tenant, node})
	return backend.CheckNode(node)
}

// Fenced lists the nodes that are.
func (v *view) Fenced(ctx context.Context) ([]string, error) {
	end, err := v.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	var out []string
	for h := range v.s.fenced {
		if h.tenant == v.tenant {
			out = append(out, h.node)
		}
	}
	slices.Sort(out)
	return out, nil
}
