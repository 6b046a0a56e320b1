package keeper

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
)

// Publish implements backend.Backend: written down, then done, then answered.
func (v *view) Publish(ctx context.Context, r backend.Publish) (backend.Connection, error) {
	if err := errors.Join(r.Check(), v.check()); err != nil {
		return backend.Connection{}, err
	}
	p, o, unlock, err := v.hold(ctx, r.Volume)
	if err != nil {
		return backend.Connection{}, err
	}
	defer unlock()
	x := p.exporter(r.Transport)
	if x == nil {
		return backend.Connection{}, p.noExporter(r.Transport)
	}
	at := placed{r.Volume, o}
	content := v.k.content(at) // before this node may write
	if err := v.k.alone(ctx, p, at); err != nil {
		return backend.Connection{}, err
	}
	old, next, err := v.admit(at, r)
	if err != nil {
		return backend.Connection{}, err
	}
	live, err := v.k.revoke(ctx, p, next)
	if err == nil {
		_, err = v.k.serve(ctx, p, live, o)
	}
	if err != nil {
		if hopeless(err) {
			v.k.takeBack(ctx, p, old, next, o, r.Node)
		}
		return backend.Connection{}, err
	}
	faultpoint.Here("keeper.publish.settled")
	pub, _ := next.of(r.Node)
	return connect(x, pub, o, content), nil
}

// alone ends what serves a volume that nobody has: of an agent that lost its
// journal it may be over the other transport, where Ensure does not look (I9).
func (k *Keeper) alone(ctx context.Context, p *pool, o placed) error {
	r, err := k.journal.get(o.id)
	if err != nil || len(r.pubs) > 0 {
		return err
	}
	return p.unexport(ctx, o.id, o.Labels.Identity)
}

// connect is what a node needs to know.
func connect(x export.Exporter, p publication, o store.Object, content backend.Content) backend.Connection {
	c := backend.Connection{
		Transport: p.transport, Target: x.Target(o.Labels.Identity, p.initiator()), Portals: x.Portals(),
		WWID: export.WWID(p.transport, o.Labels.Identity), Initiator: p.initiator(), HostID: p.hostID(), Epoch: p.epoch,
		Size: o.Size, ReadOnly: p.readOnly, Content: content, Tunables: maps.Clone(o.Labels.Tunables), Generation: o.Labels.Generation,
	}
	if p.transport == backend.NVMe {
		c.NSID = export.NSID
	} else {
		c.LUN = export.LUN
	}
	return c
}

func (p *pool) noExporter(t backend.Transport) error {
	return fmt.Errorf("%w: pool %s is not exported over %s", backend.ErrUnsupported, p.name, t)
}

// admit writes the publication down, if it may be: the record as it was, and as
// it is then.
func (v *view) admit(o placed, r backend.Publish) (old, next record, err error) {
	if old, err = v.k.journal.get(o.id); err != nil {
		return old, next, err
	}
	if len(old.pubs) > 0 && old.identity != o.Labels.Identity {
		return old, next, &backend.InUse{Object: "volume " + o.id.String(), Node: old.pubs[0].node, Why: "as an earlier volume of this name: unpublish it first"}
	}
	epoch, err := newRandom(v.k.random)
	if err != nil {
		return old, next, err
	}
	old.tenant, old.identity = v.tenant, o.Labels.Identity
	next, changed, err := admit(old, r, epoch)
	if err != nil {
		return old, next, err
	}
	if !changed {
		return old, next, v.k.journal.checkFence(fence{v.tenant, r.Node})
	}
	pub, _ := next.of(r.Node)
	if err := v.k.journal.admit(old, next, pub); err != nil {
		return old, next, err
	}
	faultpoint.Here("keeper.publish.journalled")
	return old, next, nil
}

// takeBack undoes a publication that no exporter can serve, as far as it can: the
// reconciler goes on.
func (k *Keeper) takeBack(ctx context.Context, p *pool, old, next record, o store.Object, node string) {
	if _, had := old.of(node); had {
		next = old
	} else {
		next, _ = next.revoke(node)
	}
	err := k.journal.write(next)
	if err == nil {
		next, err = k.revoke(ctx, p, next)
	}
	if err == nil {
		_, err = k.serve(ctx, p, next, o)
	}
	if err != nil {
		k.log.Warn("publication not taken back", "volume", next.volume.String(), "node", node, "error", err)
	}
}

// Unpublish implements backend.Backend.
func (v *view) Unpublish(ctx context.Context, id backend.ID, node string) error {
	if node != "" {
		if err := backend.CheckNode(node); err != nil {
			return err
		}
	}
	p, err := v.k.pool(ctx, volume, id)
	if err != nil {
		return ifThere(err)
	}
	unlock, err := v.k.locks.verb(ctx, "volume "+id.String(), id.Object)
	if err != nil {
		return err
	}
	defer unlock()
	return v.unpublish(ctx, p, id, node)
}

// unpublish with the lock held.
func (v *view) unpublish(ctx context.Context, p *pool, id backend.ID, node string) error {
	r, err := v.k.journal.get(id)
	if err != nil {
		return err
	}
	if len(r.pubs) == 0 {
		return v.unpublishUnknown(ctx, p, id)
	}
	_, has := r.of(node)
	if r.tenant != v.tenant || (node != "" && !has) {
		return nil
	}
	next, changed := r.revoke(node)
	if changed {
		v.k.journal.mark(next, v.k.log)
		faultpoint.Here("keeper.unpublish.marked")
	}
	live, err := v.k.revoke(ctx, p, next)
	if err != nil {
		return err
	}
	faultpoint.Here("keeper.unpublish.settled")
	v.k.serveRest(ctx, p, live)
	return nil
}

// serveRest serves those that an unpublished node leaves behind. What fails is the
// reconciler's: it is not the node's, who is out.
func (k *Keeper) serveRest(ctx context.Context, p *pool, live record) {
	if len(live.pubs) == 0 {
		return
	}
	o, err := p.store.Object(ctx, live.volume.Object)
	if err == nil {
		_, err = k.serve(ctx, p, live, o)
	}
	if err != nil {
		k.log.Warn("volume not as it should be", "volume", live.volume.String(), "error", err)
	}
}

// unpublishUnknown: the journal knows of nobody. If it was lost, kernel exports
// were not: a volume without a record is served to nobody.
func (v *view) unpublishUnknown(ctx context.Context, p *pool, id backend.ID) error {
	o, err := v.object(ctx, p, volume, id)
	if err != nil {
		return ifThere(err)
	}
	if err := p.unexport(ctx, id, o.Labels.Identity); err != nil {
		return err
	}
	v.k.deactivate(ctx, p, id)
	return nil
}

// Publications implements backend.Backend.
func (v *view) Publications(ctx context.Context, f backend.PublicationFilter, page backend.Page) ([]backend.Publication, string, error) {
	var all []backend.Publication
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	for _, r := range v.k.journal.all() {
		if r.tenant != v.tenant || (!f.Volume.IsZero() && f.Volume != r.volume) {
			continue
		}
		for _, p := range r.pubs {
			if f.Node == "" || f.Node == p.node {
				all = append(all, p.public(r.volume))
			}
		}
	}
	some, next, err := backend.Cut(all, func(p backend.Publication) backend.Key { return backend.Key{ID: p.Volume, Node: p.Node} }, page)
	if err != nil || len(some) == 0 {
		return some, next, err
	}
	initiators := map[string]int{} // their places
	for i, p := range some {
		initiators[p.Initiator] = i
	}
	for _, s := range v.k.sessionsSoon(ctx) {
		if i, ok := initiators[s.Initiator]; ok {
			if some[i].Sessions == nil {
				some[i].Sessions = map[string]int{}
			}
			some[i].Sessions[s.Portal]++
		}
	}
	return some, next, nil
}

// sessionsSoon are the sessions of those exporters that tell them at once. The
// kernel does not list who has access while somebody's drains: one volume that
// hangs must not hide who has all others (I6).
func (k *Keeper) sessionsSoon(ctx context.Context) (out []export.Session) {
	ctx, cancel := context.WithTimeout(ctx, sessionsTimeout)
	defer cancel()
	for _, x := range k.exporters {
		some, err := x.Sessions(ctx)
		if err != nil {
			k.log.Debug("sessions", "transport", x.Transport(), "error", err)
		}
		out = append(out, some...)
	}
	return out
}

func (p publication) public(id backend.ID) backend.Publication {
	return backend.Publication{Volume: id, Node: p.node, Transport: p.transport, Initiator: p.initiator(), Epoch: p.epoch,
		ReadOnly: p.readOnly, Shared: p.shared, Revoking: p.revoking}
}

// sessions are those of all exporters.
func (k *Keeper) sessions(ctx context.Context) ([]export.Session, error) {
	var out []export.Session
	for _, x := range k.exporters {
		some, err := x.Sessions(ctx)
		if err != nil {
			return nil, fmt.Errorf("sessions over %s: %w", x.Transport(), err)
		}
		out = append(out, some...)
	}
	return out, nil
}
