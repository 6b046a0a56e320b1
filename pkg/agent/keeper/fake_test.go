package keeper

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	memstore "github.com/csi-mpath/csi-mpath/pkg/agent/store/memory"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// fake is an exporter without bytes that outlives keepers, as a kernel's does.
// What an initiator sent before it lost its access is held until release.
type fake struct {
	transport backend.Transport
	quiescent bool // it can quiesce
	careless  bool // it answers before the drain is over: the guard of I9 is off

	mu       sync.Mutex
	served   map[string]export.Export
	held     map[string]chan struct{} // by initiator: what it sent is not done
	draining map[string][]string      // by identity: initiators that lost their access
	sessions []export.Session
	quiet    map[string]int // quiesced now
	quieted  int            // ever
	refuse   error          // of Ensure
	mute     bool           // it does not list: something hangs
	resized  map[string]int64
}

func newFake(t backend.Transport) *fake {
	return &fake{transport: t, served: map[string]export.Export{}, held: map[string]chan struct{}{},
		draining: map[string][]string{}, quiet: map[string]int{}, resized: map[string]int64{}}
}

func (x *fake) Kind() string                 { return "fake" }
func (x *fake) Transport() backend.Transport { return x.transport }
func (x *fake) Close() error                 { return nil }

func (x *fake) Portals() []backend.Portal {
	return []backend.Portal{{Address: "192.0.2.1:3260", Group: 1}, {Address: "192.0.2.2:3260", Group: 1}}
}

func (x *fake) Target(identity, _ string) string { return export.Target(x.transport, identity) }

// hold makes what an initiator sends stay until release.
func (x *fake) hold(initiator string) (release func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := make(chan struct{})
	x.held[initiator] = c
	return func() { close(c) }
}

// writable reports whether something of the initiator can still land.
func (x *fake) writable(identity, initiator string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if slices.ContainsFunc(x.served[identity].Access, func(a export.Access) bool { return a.Initiator == initiator }) {
		return true
	}
	select {
	case <-x.held[initiator]:
		return false
	default:
		return x.held[initiator] != nil
	}
}

func (x *fake) Ensure(ctx context.Context, e export.Export) (bool, error) {
	x.mu.Lock()
	if x.refuse != nil {
		defer x.mu.Unlock()
		return false, x.refuse
	}
	old, had := x.served[e.Identity]
	for _, a := range old.Access {
		if !slices.ContainsFunc(e.Access, func(b export.Access) bool { return a.Initiator == b.Initiator }) {
			x.draining[e.Identity] = append(x.draining[e.Identity], a.Initiator)
		}
	}
	x.served[e.Identity] = e
	x.mu.Unlock()
	return !had || !reflect.DeepEqual(old, e), x.drain(ctx, e.Identity)
}

func (x *fake) Revoke(ctx context.Context, _ backend.ID, identity string, stay []string) error {
	x.mu.Lock()
	e, had := x.served[identity]
	var left []export.Access
	for _, a := range e.Access {
		if slices.Contains(stay, a.Initiator) {
			left = append(left, a)
		} else {
			x.draining[identity] = append(x.draining[identity], a.Initiator)
		}
	}
	if e.Access = left; had {
		x.served[identity] = e
	}
	x.mu.Unlock()
	return x.drain(ctx, identity)
}

// drain waits for what those without access sent.
func (x *fake) drain(ctx context.Context, identity string) error {
	x.mu.Lock()
	var waits []chan struct{}
	for _, i := range x.draining[identity] {
		if c := x.held[i]; c != nil && !x.careless {
			waits = append(waits, c)
		}
	}
	x.mu.Unlock()
	for _, c := range waits {
		select {
		case <-c:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", backend.ErrBusy, ctx.Err())
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.draining, identity)
	return nil
}

func (x *fake) Remove(ctx context.Context, v backend.ID, identity string) error {
	x.mu.Lock()
	_, had := x.served[identity]
	x.mu.Unlock()
	if !had {
		return nil
	}
	if _, err := x.Ensure(ctx, export.Export{Volume: v, Identity: identity}); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.served, identity)
	return nil
}

func (x *fake) Resize(_ context.Context, e export.Export) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.resized[e.Identity] = e.Size
	old := x.served[e.Identity]
	old.Size = e.Size
	x.served[e.Identity] = old
	return nil
}

func (x *fake) Quiesce(_ context.Context, identity string) (func(), error) {
	if !x.quiescent {
		return nil, backend.ErrUnsupported
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if identity != nobody {
		x.quieted++
	}
	x.quiet[identity]++
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.quiet[identity]--
	}, nil
}

// listing waits for ctx if what is listed cannot be.
func (x *fake) listing(ctx context.Context) error {
	x.mu.Lock()
	mute := x.mute
	x.mu.Unlock()
	if mute {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (x *fake) Exported(ctx context.Context) ([]export.Exported, error) {
	if err := x.listing(ctx); err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []export.Exported
	for identity, e := range x.served {
		s := export.Exported{Identity: identity, Target: x.Target(identity, "")}
		for _, a := range e.Access {
			s.Initiators = append(s.Initiators, a.Initiator)
		}
		out = append(out, s)
	}
	return out, nil
}

func (x *fake) Sessions(ctx context.Context) ([]export.Session, error) {
	if err := x.listing(ctx); err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.sessions), nil
}

// refusing has Ensure return err, nil: do its work.
func (x *fake) refusing(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.refuse = err
}

// serving is what is served, by identity.
func (x *fake) serving() map[string]export.Export {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.served)
}

// forget serves nothing any more, as after a reboot.
func (x *fake) forget() {
	x.mu.Lock()
	defer x.mu.Unlock()
	clear(x.served)
}

// connect sets who is connected.
func (x *fake) connect(s ...export.Session) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sessions = s
}

// rig is a keeper over a store in memory and two fakes.
type rig struct {
	t      testing.TB
	dir    string
	store  *memstore.Store
	served store.Store // store, or what a test put around it
	iscsi  *fake
	nvme   *fake
	k      *Keeper
	b      backend.Backend // of tenant "t"
}

const (
	mib   = 1 << 20
	pool0 = "p"
)

// newRig opens one; atomic is about its store's snapshots.
func newRig(t testing.TB, atomic bool) *rig {
	t.Helper()
	return newRigOver(t, atomic, func(s *memstore.Store) store.Store { return s })
}

// newRigOver opens one whose store is what over makes of it.
func newRigOver(t testing.TB, atomic bool, over func(*memstore.Store) store.Store) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), iscsi: newFake(backend.ISCSI), nvme: newFake(backend.NVMe)}
	r.store = memstore.New(memstore.Config{Dir: t.TempDir(), Snapshots: true, AtomicSnapshots: atomic})
	r.served = over(r.store)
	r.open()
	t.Cleanup(func() { _ = r.k.Close() })
	return r
}

func (r *rig) config() Config {
	return Config{State: r.dir, Boot: "boot", Pools: []Pool{{Name: pool0, Store: r.served, Exports: []export.Exporter{r.iscsi, r.nvme}}}}
}

func (r *rig) open() {
	r.t.Helper()
	k, err := Open(r.t.Context(), r.config())
	if err != nil {
		r.t.Fatal(err)
	}
	r.k, r.b = k, k.For("t")
}

// reopen closes the keeper, and opens the next on the same disk.
func (r *rig) reopen() {
	r.t.Helper()
	if err := r.k.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.open()
}

func (r *rig) create(name string) backend.Volume {
	r.t.Helper()
	v, err := r.b.CreateVolume(r.t.Context(), backend.CreateVolume{Name: name, Pool: pool0, Size: backend.Size{Required: 4 * mib}})
	if err != nil {
		r.t.Fatal(err)
	}
	return v
}

// to asks for a node's publication over iSCSI.
func to(id backend.ID, node string) backend.Publish {
	return backend.Publish{Volume: id, Node: node, Transport: backend.ISCSI, Initiator: "iqn.2025-01.io.csi-mpath:node:" + node}
}

// shared is to for one of several nodes.
func shared(id backend.ID, node string) backend.Publish {
	p := to(id, node)
	p.Shared = true
	return p
}

func (r *rig) publish(p backend.Publish) backend.Connection {
	r.t.Helper()
	c, err := r.b.Publish(r.t.Context(), p)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *rig) unpublish(id backend.ID, node string) {
	r.t.Helper()
	if err := r.b.Unpublish(r.t.Context(), id, node); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) publications() []backend.Publication {
	r.t.Helper()
	all, _, err := r.b.Publications(r.t.Context(), backend.PublicationFilter{}, backend.Page{})
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// recordPath is where a volume's record lies.
func (r *rig) recordPath(id backend.ID) string {
	return filepath.Join(r.dir, "volumes", id.String()+suffix)
}

// stuck is a source of randomness that is none: the guard against reused epochs
// is off.
type stuck struct{}

func (stuck) Read(b []byte) (int, error) { clear(b); return len(b), nil }

var _ io.Reader = stuck{}
