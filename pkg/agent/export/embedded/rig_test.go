package embedded

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/test/node"
	"github.com/csi-mpath/csi-mpath/test/port"
)

// long is more than anything takes, and less than a test may.
const long = time.Minute

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	t.Cleanup(cancel)
	return ctx
}

// rig is an exporter with two portals on loopback.
type rig struct {
	t testing.TB
	x *Exporter
	// restart ends the exporter, which resets its connections as the end of its
	// process does, and begins another one, which serves nothing yet.
	restart func()
}

func transports(t *testing.T, f func(t *testing.T, tr backend.Transport)) {
	t.Helper()
	for _, tr := range []backend.Transport{backend.ISCSI, backend.NVMe} {
		t.Run(string(tr), func(t *testing.T) { f(t, tr) })
	}
}

func newRig(t testing.TB, tr backend.Transport) *rig {
	t.Helper()
	r := &rig{t: t}
	cfg := Config{Transport: tr}
	for range 2 {
		p, err := port.Hold() // it may be listened on again
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		cfg.Portals = append(cfg.Portals, Portal{Listen: p.Addr()})
	}
	r.start(cfg)
	r.restart = func() {
		t.Helper()
		if err := r.x.Close(); err != nil {
			t.Fatal(err)
		}
		r.start(cfg)
	}
	t.Cleanup(func() { _ = r.x.Close() })
	return r
}

func (r *rig) start(cfg Config) {
	r.t.Helper()
	var err error
	if r.x, err = New(cfg); err != nil {
		r.t.Fatal(err)
	}
}

// volume is an export of a file of size bytes that nobody may use.
func (r *rig) volume(n int, size int64) export.Export {
	r.t.Helper()
	path := filepath.Join(r.t.TempDir(), fmt.Sprint("v", n))
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		r.t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(path))
	return export.Export{Volume: backend.ID{Pool: "p", Object: fmt.Sprint("v", n)}, Identity: hex.EncodeToString(sum[:16]),
		Backing: store.Backing{Path: path}, Size: size, Cache: true, Discard: true}
}

// access is that of host n, in its epoch.
func (r *rig) access(n, epoch int) export.Access {
	if r.x.Transport() == backend.NVMe {
		return export.Access{Initiator: fmt.Sprintf("nqn.2026-01.io.test:host%d:%d", n, epoch), HostID: fmt.Sprintf("%032x", n*1000+epoch+1)}
	}
	return export.Access{Initiator: fmt.Sprintf("iqn.2026-01.io.test:host%d:%d", n, epoch)}
}

func (r *rig) ensure(e export.Export, access ...export.Access) (changed bool) {
	r.t.Helper()
	e.Access = access
	changed, err := r.x.Ensure(within(r.t), e)
	if err != nil {
		r.t.Fatal(err)
	}
	return changed
}

// connection is what a node would be told.
func (r *rig) connection(e export.Export, a export.Access) backend.Connection {
	return backend.Connection{Transport: r.x.Transport(), Target: r.x.Target(e.Identity, a.Initiator), LUN: export.LUN, NSID: export.NSID,
		Portals: r.x.Portals(), Initiator: a.Initiator, HostID: a.HostID, WWID: export.WWID(r.x.Transport(), e.Identity)}
}

func (r *rig) dial(e export.Export, a export.Access, portal int) *node.Path {
	r.t.Helper()
	return r.loginWith(r.connection(e, a), portal, a.Auth)
}

func (r *rig) login(c backend.Connection, portal int) *node.Path {
	r.t.Helper()
	return r.loginWith(c, portal, backend.Auth{})
}

func (r *rig) loginWith(c backend.Connection, portal int, a backend.Auth) *node.Path {
	r.t.Helper()
	p, err := node.Dial(within(r.t), c, portal, a)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(p.Close)
	return p
}

// refused fails unless a may not log in.
func (r *rig) refused(e export.Export, a export.Access) {
	r.t.Helper()
	r.shutOutWith(r.connection(e, a), a.Auth)
}

func (r *rig) shutOut(c backend.Connection) {
	r.t.Helper()
	r.shutOutWith(c, backend.Auth{})
}

func (r *rig) shutOutWith(c backend.Connection, a backend.Auth) {
	r.t.Helper()
	for portal := range c.Portals {
		if p, err := node.Dial(within(r.t), c, portal, a); err == nil {
			p.Close()
			r.t.Fatalf("%s logged in at portal %d", c.Initiator, portal)
		}
	}
}

// mayLogin reports whether an initiator is let in.
func (x *Exporter) mayLogin(identity, initiator string) bool {
	v := x.find(identity)
	return v != nil && slices.Contains(v.srv.Granted(), initiator)
}

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>9)*31 + byte(i) + seed
	}
	return b
}

// roundTrip writes, flushes and reads back.
func roundTrip(t testing.TB, p *node.Path, off int64, seed byte) {
	t.Helper()
	want := pattern(64<<10, seed)
	got := make([]byte, len(want))
	for _, err := range []error{p.Write(want, off), p.Flush(), p.Read(got, off)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, want) {
		t.Fatal("the bytes differ")
	}
}

// gated is a store whose writes wait while it is shut.
type gated struct {
	*target.File
	mu      sync.Mutex
	shut    chan struct{} // nil: open
	waiting chan struct{} // one value for each write that waits
	landed  func(p []byte, off uint64)
	fail    error  // of writes, and flushes
	path    string // of the file
	dirty   bool   // written to since the last flush
}

// gate has all volumes that begin from now on in gated stores.
func (r *rig) gate() func(identity string) *gated {
	var mu sync.Mutex
	all := map[string]*gated{}
	open := r.x.open
	r.x.open = func(e *export.Export) (target.Store, error) {
		st, err := open(e)
		if err != nil {
			return nil, err
		}
		g := &gated{File: st.(*target.File), waiting: make(chan struct{}, 4096), path: e.Backing.Path}
		mu.Lock()
		all[e.Identity] = g
		mu.Unlock()
		return g, nil
	}
	return func(identity string) *gated {
		mu.Lock()
		defer mu.Unlock()
		return all[identity]
	}
}

// shutGate shuts the gate; open lets what waits go, and all that comes.
func (g *gated) shutGate() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = make(chan struct{})
	return sync.OnceFunc(func() { g.next(nil) })
}

// pass lets what waits go, and nothing that comes.
func (g *gated) pass() { g.next(make(chan struct{})) }

func (g *gated) next(shut chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.shut
	g.shut = shut
	close(was)
}

func (g *gated) WriteAt(p []byte, off uint64) error {
	g.mu.Lock()
	shut, landed, fail := g.shut, g.landed, g.fail
	g.mu.Unlock()
	if shut != nil {
		g.waiting <- struct{}{}
		<-shut
	}
	if landed != nil {
		landed(p, off)
	}
	if fail != nil {
		return fail
	}
	g.mu.Lock()
	g.dirty = true
	g.mu.Unlock()
	return g.File.WriteAt(p, off)
}

func (g *gated) Flush() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fail != nil {
		return g.fail
	}
	g.dirty = false
	return g.File.Flush()
}

// durable fails unless all that was written was flushed.
func (g *gated) durable(t testing.TB) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dirty {
		t.Error("what was written is not durable")
	}
}
