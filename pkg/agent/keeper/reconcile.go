package keeper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
)

// inventory is what the stores had when it was made.
type inventory map[backend.ID]store.Object

// inventory has, with an error, what could be read.
func (k *Keeper) inventory(ctx context.Context) (inventory, error) {
	inv := inventory{}
	var errs []error
	for _, p := range k.order {
		all, err := k.list(ctx, p)
		if err != nil {
			errs = append(errs, fmt.Errorf("pool %s: %w", p.name, err))
		}
		for _, o := range all {
			inv[backend.ID{Pool: p.name, Object: o.Name}] = o
		}
	}
	return inv, errors.Join(errs...)
}

// list has a bound: a pool that hangs keeps no other waiting (I6).
func (k *Keeper) list(ctx context.Context, p *pool) ([]store.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	return p.store.Objects(ctx)
}

// restore serves all volumes of the journal, before anybody is answered; failed
// are those it could not serve yet.
func (k *Keeper) restore(ctx context.Context) (failed int, err error) {
	inv, err := k.inventory(ctx)
	if err != nil {
		k.log.Error("some volumes cannot be read", "error", err)
	}
	faultpoint.Here("keeper.restore.listed")
	whole, revoking := k.journal.byRevocation()
	failed = k.restoreSome(ctx, whole, inv)
	// Those being revoked have lost their access once they were looked at; what they
	// sent before the start may take its time to drain, and nobody waits for that.
	soon, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	return failed + k.restoreSome(soon, revoking, inv), ctx.Err()
}

// restoreSome serves volumes side by side, and counts those that it could not.
func (k *Keeper) restoreSome(ctx context.Context, some []record, inv inventory) int {
	var n atomic.Int64
	each(restoreWorkers, some, func(r record) {
		if _, err := k.settleOne(ctx, r.volume, inv); err != nil {
			n.Add(1)
			k.log.Error("volume not served yet", "volume", r.volume.String(), "error", err)
		}
	})
	return int(n.Load())
}

// reconcileLoop repairs what differs from the journal, every minute, and soon
// when something failed.
func (k *Keeper) reconcileLoop(ctx context.Context, failed int) {
	said := map[backend.ID]string{}
	for {
		pause := reconcileEvery
		if failed > 0 {
			pause = reconcileSoon
		}
		if !sleep(ctx, pause) {
			return
		}
		begun := time.Now()
		failed = k.reconcile(ctx, said)
		k.stats.reconciled(time.Since(begun), failed)
		if ctx.Err() == nil {
			k.reportOrphans(ctx)
		}
	}
}

// sleep reports whether the pause went by.
func sleep(ctx context.Context, pause time.Duration) bool {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// reconcile settles every volume that nobody works on. said is what failed in the
// pass before, and becomes what failed in this one: the same is logged once.
func (k *Keeper) reconcile(ctx context.Context, said map[backend.ID]string) (failed int) {
	k.locks.note() // from now on, the inventory may be older than an object
	inv, err := k.inventory(ctx)
	if err != nil {
		k.log.Warn("some volumes cannot be read", "error", err)
	}
	var mu sync.Mutex
	now := map[backend.ID]string{}
	whole, revoking := k.journal.byRevocation() // who drains keeps nobody waiting
	each(reconcileWorkers, append(whole, revoking...), func(r record) {
		err := k.reconcileOne(ctx, r, inv)
		if err == nil || ctx.Err() != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		now[r.volume] = err.Error()
		if said[r.volume] != now[r.volume] {
			k.log.Error("volume not as it should be", "volume", r.volume.String(), "error", err)
		}
	})
	clear(said)
	maps.Copy(said, now)
	return len(now)
}

func (k *Keeper) reconcileOne(ctx context.Context, r record, inv inventory) error {
	ctx, unlock, free := k.locks.background(ctx, r.volume.Object)
	if !free {
		return nil // a verb is at it
	}
	defer unlock()
	changed, err := k.settleOne(ctx, r.volume, inv)
	switch {
	case ctx.Err() != nil: // a verb wants it, or we stop
		return nil
	case err == nil && changed:
		k.stats.repairs.Add(1)
		k.log.Warn("export repaired", "volume", r.volume.String())
		k.events.tell(r.tenant, backend.Event{Kind: backend.ExportRepaired, Warning: true, Pool: r.volume.Pool, Volume: r.volume,
			Message: fmt.Sprintf("volume %s was not served as it should be, and is again", r.volume)})
	}
	return err
}

// settleOne settles a volume as its record is now; its lock is held.
func (k *Keeper) settleOne(ctx context.Context, id backend.ID, inv inventory) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	p := k.pools[id.Pool]
	if p == nil {
		return false, fmt.Errorf("%w: pool %s is not configured, and has published volumes", backend.ErrUnavailable, id.Pool)
	}
	r, err := k.journal.get(id)
	if err != nil || len(r.pubs) == 0 {
		return false, err
	}
	revoking := r
	if r, err = k.revoke(ctx, p, r); err != nil || len(r.pubs) == 0 {
		return false, err
	}
	o, there := inv[id]
	if !there || k.locks.noted(id.Object) {
		if o, err = p.store.Object(ctx, id.Object); err != nil && !errors.Is(err, backend.ErrNotFound) {
			return false, err
		}
	}
	changed, err = k.serve(ctx, p, r, o)
	return changed && len(r.pubs) == len(revoking.pubs), err // a revocation is no repair
}
