package keeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// OrphanKind says what an orphan is.
type OrphanKind string

// The orphans.
const (
	// OrphanExport is served under our names, and the journal knows nothing of it.
	// Publishing, unpublishing or deleting its volume ends that.
	OrphanExport OrphanKind = "export"
	// OrphanObject is a volume or snapshot whose creation was not finished, for
	// long. The same creation again finishes it.
	OrphanObject OrphanKind = "object"
	// OrphanRecord is a publication of a volume that is not there. Unpublishing it
	// ends that.
	OrphanRecord OrphanKind = "record"
	// OrphanFile is a file of the journal that cannot be read.
	OrphanFile OrphanKind = "file"
)

// Orphan is something of ours that nothing refers to. It is reported, and never
// removed by itself.
type Orphan struct {
	Kind   OrphanKind
	Tenant string // "" if it is not known
	Pool   string
	Name   string // object, target name or record
	Why    string
	Since  time.Time // when it was seen first
}

// told is what its tenant is told; what may be anybody's has no name.
func (o Orphan) told() string {
	if o.Tenant == "" {
		return fmt.Sprintf("%s: its name is in the agent's log: %s", o.Kind, o.Why)
	}
	return fmt.Sprintf("%s %s: %s", o.Kind, o.Name, o.Why)
}

func (o Orphan) key() string { return string(o.Kind) + "\x00" + o.Pool + "\x00" + o.Name }

// orphans remembers what was seen when, and what was told of.
type orphans struct {
	mu    sync.Mutex
	since map[string]time.Time
	told  map[string]bool
	count map[OrphanKind]int // of the last look
}

// Orphans looks for them now.
func (k *Keeper) Orphans(ctx context.Context) ([]Orphan, error) {
	var all []Orphan
	var errs []error
	for _, look := range []func(context.Context) ([]Orphan, error){k.orphanExports, k.unfinished, k.orphanRecords} {
		some, err := look(ctx)
		all, errs = append(all, some...), append(errs, err)
	}
	for _, err := range k.journal.unreadable() {
		all = append(all, Orphan{Kind: OrphanFile, Name: err.Error(), Why: "it cannot be read"})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return k.found.seen(all, time.Now()), nil
}

// seen dates orphans, forgets those that are gone, and leaves out objects that may
// yet be finished.
func (s *orphans) seen(all []Orphan, now time.Time) []Orphan {
	s.mu.Lock()
	defer s.mu.Unlock()
	since, told := map[string]time.Time{}, map[string]bool{}
	out := []Orphan{}
	s.count = map[OrphanKind]int{}
	for _, o := range all {
		o.Since = now
		if t, known := s.since[o.key()]; known {
			o.Since = t
		}
		since[o.key()] = o.Since
		if o.Kind == OrphanObject && now.Sub(o.Since) < unfinishedAfter {
			continue
		}
		if s.told[o.key()] {
			told[o.key()] = true
		}
		s.count[o.Kind]++
		out = append(out, o)
	}
	s.since, s.told = since, told
	slices.SortFunc(out, func(a, b Orphan) int { return strings.Compare(a.key(), b.key()) })
	return out[:min(len(out), maxOrphans)]
}

// news are those that were not told of.
func (s *orphans) news(all []Orphan) []Orphan {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Orphan
	for _, o := range all {
		if !s.told[o.key()] {
			s.told[o.key()] = true
			out = append(out, o)
		}
	}
	return out
}

// firstOrphans looks before anybody is answered: Fence must know of what is served
// to nobody. They are told of later, when somebody may listen.
func (k *Keeper) firstOrphans(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	some, err := k.orphanExports(ctx)
	if err != nil {
		k.log.Warn("look for orphans", "error", err)
	}
	k.found.mu.Lock()
	defer k.found.mu.Unlock()
	k.found.count = map[OrphanKind]int{OrphanExport: len(some)}
}

// reportOrphans tells of each once. What drains may keep the kernel from listing
// who has access: the next round finds them (I6).
func (k *Keeper) reportOrphans(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	all, err := k.Orphans(ctx)
	if err != nil {
		k.log.Warn("look for orphans", "error", err)
		return
	}
	for _, o := range k.found.news(all) {
		k.log.Warn("orphan", "kind", o.Kind, "pool", o.Pool, "name", o.Name, "why", o.Why)
		k.events.tell(o.Tenant, backend.Event{Kind: backend.OrphanFound, Warning: true, Pool: o.Pool, Message: o.told()})
	}
}

// orphanExports are served, and in no record, twice in a row: between the two
// looks of one round a volume may come or go.
func (k *Keeper) orphanExports(ctx context.Context) ([]Orphan, error) {
	first, err := k.strangers(ctx)
	if err != nil || len(first) == 0 {
		return nil, err
	}
	second, err := k.strangers(ctx)
	var out []Orphan
	for target := range second {
		if first[target] {
			out = append(out, Orphan{Kind: OrphanExport, Name: target, Why: "it is served, and the journal has nobody for it: publish, unpublish or delete its volume"})
		}
	}
	return out, err
}

// unknownServed is an error while the kernel serves volumes that the journal knows
// nothing of: any node may have them, also one that is fenced (I9). Only what the
// last look found is looked at again, for a moment: other volumes may be draining.
func (k *Keeper) unknownServed(ctx context.Context) error {
	k.found.mu.Lock()
	n := k.found.count[OrphanExport]
	k.found.mu.Unlock()
	if n == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sessionsTimeout)
	defer cancel()
	if some, err := k.orphanExports(ctx); err == nil && len(some) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d volumes are served of which the journal does not know to whom (csi-mpath agent orphans): unpublish or delete them", backend.ErrUnavailable, n)
}

// strangers are the targets that are served, of volumes without a record.
func (k *Keeper) strangers(ctx context.Context) (map[string]bool, error) {
	served := map[string]string{} // identities by target
	for _, x := range k.exporters {
		some, err := x.Exported(ctx)
		if err != nil {
			return nil, fmt.Errorf("exports over %s: %w", x.Transport(), err)
		}
		for _, e := range some {
			served[cmp.Or(e.Target, export.Target(x.Transport(), e.Identity))] = e.Identity
		}
	}
	known := k.damagedIdentities(ctx)
	for _, r := range k.journal.all() {
		known[r.identity] = true
	}
	out := map[string]bool{}
	for target, identity := range served {
		if !known[identity] {
			out[target] = true
		}
	}
	return out, nil
}

// damagedIdentities are those of volumes whose record cannot be read: somebody has
// them.
func (k *Keeper) damagedIdentities(ctx context.Context) map[string]bool {
	out := map[string]bool{}
	for _, id := range k.journal.damagedVolumes() {
		p := k.pools[id.Pool]
		if p == nil {
			continue
		}
		if o, err := p.store.Object(ctx, id.Object); err == nil {
			out[o.Labels.Identity] = true
		}
	}
	return out
}

// unfinished are the objects that may have to be finished.
func (k *Keeper) unfinished(ctx context.Context) ([]Orphan, error) {
	var out []Orphan
	for _, p := range k.order {
		names, err := p.store.Unfinished(ctx)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", p.name, err)
		}
		for _, name := range names {
			out = append(out, Orphan{Kind: OrphanObject, Pool: p.name, Name: name, Why: "its creation was not finished, and nobody asked for it again: create it again, or delete it"})
		}
	}
	return out, nil
}

// orphanRecords are publications of volumes that vanished.
func (k *Keeper) orphanRecords(ctx context.Context) ([]Orphan, error) {
	records := k.journal.all() // before the objects: these are there longer
	inv, err := k.inventory(ctx)
	if err != nil {
		return nil, err
	}
	var out []Orphan
	for _, r := range records {
		if o, there := inv[r.volume]; there && o.Labels.Identity == r.identity {
			continue
		}
		if now, err := k.journal.get(r.volume); err != nil || now.identity != r.identity || len(now.pubs) == 0 {
			continue // it was unpublished meanwhile
		}
		out = append(out, Orphan{Kind: OrphanRecord, Tenant: r.tenant, Pool: r.volume.Pool, Name: r.volume.String(),
			Why: fmt.Sprintf("node %s has it, and it is not in its pool: unpublish it", r.pubs[0].node)})
	}
	return out, nil
}
