// Package keeper is the agent's mind: it makes the verbs of a backend.Backend, for
// several tenants, out of stores, which keep the bytes, and exporters, which serve
// them.
//
// The store's labels are the truth about volumes and snapshots, the journal about
// who may reach them. Every verb writes down what it is going to do before it does
// it, and each of its steps can be done again: whoever calls again after a kill,
// or else the reconciler, arrives where the verb was going. Fault points
// ("keeper.<verb>.<step>", see Points) stand between the steps.
package keeper

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/durable"
)

// Pool is a store, and how its volumes are served.
type Pool struct {
	Name  string
	Store store.Store
	// Exports are at most one per transport. One may serve several pools.
	Exports []export.Exporter
}

// Config is what a keeper works with.
type Config struct {
	// State is the directory of the journal. It has secrets, and one keeper.
	State   string
	Pools   []Pool
	Version string // of the program, for Info
	// Boot is for Info; "" is the kernel's boot ID.
	Boot string
	// Log is told what nobody waits for the answer of; nil is nobody.
	Log *slog.Logger
}

// Keeper keeps what was asked for true. Its methods may be called from any
// goroutine.
type Keeper struct {
	cfg    Config
	log    *slog.Logger
	random io.Reader // tests replace it
	pools  map[string]*pool
	order  []*pool // by name
	// exporters are all, once each.
	exporters []export.Exporter

	journal *journal
	locks   *locks
	events  *events
	stats   stats
	found   orphans

	unlock func()
	stop   context.CancelFunc
	wg     sync.WaitGroup
}

// Open reads the journal, and serves what it says, identically, before it
// returns. What cannot be served is logged, and tried again. Close releases the
// directory; the stores and exporters are the caller's to close, after that.
func Open(ctx context.Context, cfg Config) (*Keeper, error) {
	k := &Keeper{cfg: cfg, log: cfg.Log, random: rand.Reader, locks: newLocks(), events: newEvents()}
	if k.log == nil {
		k.log = slog.New(slog.DiscardHandler)
	}
	if k.cfg.Boot == "" {
		k.cfg.Boot = bootID()
	}
	if err := k.openPools(ctx); err != nil {
		return nil, err
	}
	if err := durable.Own(cfg.State); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	unlock, err := durable.Lock(filepath.Join(cfg.State, "lock"), true)
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w: is another agent running?", cfg.State, err)
	}
	k.unlock = unlock
	if err := k.start(ctx); err != nil {
		unlock()
		return nil, err
	}
	return k, nil
}

// start reads the journal, restores, and begins what goes on beside the verbs.
func (k *Keeper) start(ctx context.Context) (err error) {
	if k.journal, err = openJournal(k.cfg.State); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	for _, err := range k.journal.unreadable() {
		k.log.Error("journal", "error", err)
	}
	failed, err := k.restore(ctx)
	if err != nil {
		return fmt.Errorf("restore the exports: %w", err)
	}
	k.firstOrphans(ctx)
	background, stop := context.WithCancel(context.Background())
	k.stop = stop
	for _, f := range []func(context.Context){
		func(ctx context.Context) { k.reconcileLoop(ctx, failed) },
		k.sessionLoop,
		k.poolLoop,
	} {
		k.wg.Go(func() { f(background) })
	}
	return nil
}

// Close stops the keeper. What it exported stays, until the exporters are closed.
// Verbs that are running are not waited for: end their contexts first.
func (k *Keeper) Close() error {
	k.stop()
	k.wg.Wait()
	k.events.close()
	k.unlock()
	return nil
}

// For is the backend as a tenant sees it: what others have is not there. A
// tenant's name is as that of a pool, up to backend.MaxObject bytes.
func (k *Keeper) For(tenant string) backend.Backend { return &view{k: k, tenant: tenant} }

// view is the Backend of one tenant.
type view struct {
	k      *Keeper
	tenant string
}

// Info implements backend.Backend.
func (v *view) Info(ctx context.Context) (backend.Info, error) {
	info := backend.Info{Kind: "agent", Version: v.k.cfg.Version, Boot: v.k.cfg.Boot}
	for _, p := range v.k.order {
		info.Pools = append(info.Pools, p.info)
	}
	return info, ctx.Err()
}

// check refuses a tenant without a proper name: it would be written to labels.
func (v *view) check() error {
	if !backend.ValidName(v.tenant, backend.MaxObject) {
		return fmt.Errorf("%w: no tenant", backend.ErrDenied)
	}
	return nil
}

// bootID is the kernel's, "" if it does not say.
func bootID() string {
	b, err := durable.Read("/proc/sys/kernel/random/boot_id", 64)
	if err != nil || len(b) < 36 {
		return ""
	}
	return string(b[:36])
}

// notFound is the error about an object that there is not, for this tenant.
func notFound(what string, id backend.ID) error {
	return fmt.Errorf("%w: %s %s", backend.ErrNotFound, what, id)
}

// ifThere turns ErrNotFound into success: what must be gone, and is.
func ifThere(err error) error {
	if errors.Is(err, backend.ErrNotFound) {
		return nil
	}
	return err
}
