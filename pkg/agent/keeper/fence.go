package keeper

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
)

// Fence implements backend.Backend. The mark comes first: from then on the node
// gets nothing new, and what it has is revoked until nothing is left.
func (v *view) Fence(ctx context.Context, node string) error {
	if err := errors.Join(backend.CheckNode(node), v.check()); err != nil {
		return err
	}
	f := fence{v.tenant, node}
	unlock, err := v.k.locks.verb(ctx, "node "+node, "node "+f.file())
	if err != nil {
		return err
	}
	defer unlock()
	if err := v.k.journal.fence(f); err != nil {
		return err
	}
	faultpoint.Here("keeper.fence.marked")
	v.k.events.tell(v.tenant, backend.Event{Kind: backend.NodeFenced, Warning: true, Node: node,
		Message: fmt.Sprintf("node %s is fenced: its volumes are revoked, and it gets none until it is unfenced", node)})
	if err := v.revokeAll(ctx, node); err != nil {
		return fmt.Errorf("node %s is marked, and not yet without volumes: %w", node, err)
	}
	faultpoint.Here("keeper.fence.revoked")
	return nil
}

// revokeAll unpublishes all volumes of a node, several side by side.
func (v *view) revokeAll(ctx context.Context, node string) error {
	var has []record
	for _, r := range v.k.journal.all() {
		if _, ok := r.of(node); ok && r.tenant == v.tenant {
			has = append(has, r)
		}
	}
	var mu sync.Mutex
	errs := append(v.damagedRecords(ctx), v.k.unknownServed(ctx)) // they may be of this node's, too
	each(fenceWorkers, has, func(r record) {
		err := v.revokeWhenFree(ctx, r.volume, node)
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	})
	return errors.Join(errs...)
}

// damagedRecords are the errors of the records that cannot be read. Those that may
// be another tenant's do not say which.
func (v *view) damagedRecords(ctx context.Context) (errs []error) {
	for id, err := range v.k.journal.damagedRecords() {
		if _, notOurs := v.find(ctx, volume, id); notOurs != nil {
			err = fmt.Errorf("%w: a record of the journal cannot be read, and may be about this node (csi-mpath agent orphans)", backend.ErrUnavailable)
		}
		errs = append(errs, err)
	}
	return errs
}

// revokeWhenFree waits for whoever works on the volume, and may be publishing it.
func (v *view) revokeWhenFree(ctx context.Context, id backend.ID, node string) error {
	p, err := v.k.pool(ctx, volume, id)
	if err != nil {
		return err
	}
	unlock, err := v.k.locks.wait(ctx, "volume "+id.String(), id.Object)
	if err != nil {
		return err
	}
	defer unlock()
	return v.unpublish(ctx, p, id, node)
}

// each calls f for all, up to workers side by side, and returns when all are done.
func each[T any](workers int, all []T, f func(T)) {
	if len(all) == 1 {
		f(all[0])
		return
	}
	next := make(chan T)
	var wg sync.WaitGroup
	for range min(workers, len(all)) {
		wg.Go(func() {
			for x := range next {
				f(x)
			}
		})
	}
	for _, x := range all {
		next <- x
	}
	close(next)
	wg.Wait()
}

// Unfence implements backend.Backend.
func (v *view) Unfence(ctx context.Context, node string) error {
	if err := errors.Join(backend.CheckNode(node), v.check()); err != nil {
		return err
	}
	f := fence{v.tenant, node}
	unlock, err := v.k.locks.verb(ctx, "node "+node, "node "+f.file())
	if err != nil {
		return err
	}
	defer unlock()
	if err := v.k.journal.unfence(f); err != nil {
		return err
	}
	faultpoint.Here("keeper.unfence.lifted")
	return nil
}

// Fenced implements backend.Backend.
func (v *view) Fenced(ctx context.Context) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return v.k.journal.fencedNodes(v.tenant)
}
