package keeper

import (
	"context"
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// sessionKey is a node at a portal.
type sessionKey struct {
	tenant string
	volume backend.ID
	node   string
	portal string
}

// sessionLoop tells of sessions that come and go.
func (k *Keeper) sessionLoop(ctx context.Context) {
	last, err := k.nodesAtPortals(ctx) // those are no news
	for sleep(ctx, sessionsEvery) {
		now, errNow := k.nodesAtPortals(ctx)
		if errNow != nil {
			k.log.Debug("sessions", "error", errNow)
			continue
		}
		if err == nil {
			k.tellSessions(last, now)
		}
		last, err = now, nil
		k.stats.sessions.Store(int64(len(now)))
	}
}

// nodesAtPortals are the sessions there are, of nodes that we know.
func (k *Keeper) nodesAtPortals(ctx context.Context) (map[sessionKey]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	sessions, err := k.sessions(ctx)
	if err != nil || len(sessions) == 0 {
		return map[sessionKey]bool{}, err
	}
	who := map[string]sessionKey{}
	for _, r := range k.journal.all() {
		for _, p := range r.pubs {
			who[p.initiator()] = sessionKey{tenant: r.tenant, volume: r.volume, node: p.node}
		}
	}
	out := make(map[sessionKey]bool, len(sessions))
	for _, s := range sessions {
		if key, known := who[s.Initiator]; known {
			key.portal = s.Portal
			out[key] = true
		}
	}
	return out, nil
}

func (k *Keeper) tellSessions(last, now map[sessionKey]bool) {
	for s := range now {
		if !last[s] {
			k.events.tell(s.tenant, s.event(backend.SessionGained, false, "is connected"))
		}
	}
	for s := range last {
		if now[s] {
			continue
		}
		r, err := k.journal.get(s.volume)
		_, wanted := r.live().of(s.node)
		k.events.tell(s.tenant, s.event(backend.SessionLost, err == nil && wanted, "is not connected any more"))
	}
}

func (s sessionKey) event(kind backend.EventKind, warning bool, what string) backend.Event {
	return backend.Event{Kind: kind, Warning: warning, Pool: s.volume.Pool, Volume: s.volume, Node: s.node, Portal: s.portal,
		Message: fmt.Sprintf("node %s %s to volume %s at portal %s", s.node, what, s.volume, s.portal)}
}

// poolLoop tells of pools that fill.
func (k *Keeper) poolLoop(ctx context.Context) {
	states := make([]fill, len(k.order))
	for {
		for i, p := range k.order {
			u, err := k.usage(ctx, p)
			if err != nil {
				k.log.Debug("usage", "pool", p.name, "error", err)
				continue
			}
			for _, kind := range states[i].step(u.Filling, u.Full) {
				k.log.Warn("pool", "pool", p.name, "event", kind)
				k.events.tell("", backend.Event{Kind: kind, Warning: kind != backend.PoolRecovered, Pool: p.name, Message: fillText(p.name, kind, u)})
			}
		}
		if !sleep(ctx, poolsEvery) {
			return
		}
	}
}

func (k *Keeper) usage(ctx context.Context, p *pool) (store.Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	return p.store.Usage(ctx)
}

func fillText(pool string, kind backend.EventKind, u store.Usage) string {
	what := map[backend.EventKind]string{
		backend.PoolFilling:   "is above its mark: nothing new is made in it until it is extended",
		backend.PoolFull:      "is full: writes fail or wait until it is extended",
		backend.PoolRecovered: "has room again",
	}[kind]
	return fmt.Sprintf("pool %s %s (%d of %d bytes used, metadata %.0f %%)", pool, what, u.Used, u.Total, u.Metadata*100)
}

// fill is how full a pool was said to be: worse at once, better only after it was
// better several times in a row (pure).
type fill struct {
	filling, full bool
	better        int
}

// step takes one look, and returns what it is to tell.
func (f *fill) step(filling, full bool) (tell []backend.EventKind) {
	filling = filling || full
	if (filling && !f.filling) || (full && !f.full) {
		f.better = 0
		if !f.filling {
			tell = append(tell, backend.PoolFilling)
		}
		if full {
			tell = append(tell, backend.PoolFull)
		}
		f.filling, f.full = true, full || f.full
		return tell
	}
	if filling == f.filling && full == f.full {
		f.better = 0
		return nil
	}
	if f.better++; f.better < recoverAfter {
		return nil
	}
	f.better, f.full = 0, full
	if f.filling = filling; !filling {
		tell = append(tell, backend.PoolRecovered)
	}
	return tell
}
