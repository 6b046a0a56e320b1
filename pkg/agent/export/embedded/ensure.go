package embedded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// volume is a volume that is served. Its caller's calls come one at a time; what
// is listed meanwhile (list.go) is in srv, which has its own lock.
type volume struct {
	identity string
	name     string // of its target
	backing  store.Backing
	cache    bool
	discard  bool
	size     int64 // bytes
	access   []export.Access
	srv      server
	store    target.Store

	ending atomic.Bool
	gone   chan struct{} // closed when it has ended, and fate is set
	fate   error
}

// Ensure implements export.Exporter.
func (x *Exporter) Ensure(ctx context.Context, e export.Export) (changed bool, err error) {
	if err := x.check(&e); err != nil {
		return false, fmt.Errorf("volume %s: %w", e.Volume, err)
	}
	switch v := x.find(e.Identity); {
	case v == nil:
		changed, err = true, x.begin(ctx, &e)
	case v.serves(&e):
		changed, err = x.follow(ctx, v, &e)
	default:
		changed = true
		if err = x.remove(ctx, v); err == nil {
			err = x.begin(ctx, &e)
		}
	}
	if err != nil {
		err = fmt.Errorf("volume %s: %w", e.Volume, err)
	}
	return changed, err
}

// follow gives a volume that is served other access, or another size. Access
// first: whatever else fails, who is put out is out (I9).
func (x *Exporter) follow(ctx context.Context, v *volume, e *export.Export) (changed bool, err error) {
	changed, err = x.grant(ctx, v, e.Access)
	if err == nil && e.Size != v.size {
		return true, v.grow(e)
	}
	return changed, err
}

// grant gives access, and returns when nothing of others runs.
func (x *Exporter) grant(ctx context.Context, v *volume, access []export.Access) (changed bool, err error) {
	changed, over, err := v.srv.grant(access)
	if changed {
		x.proto.changed()
	}
	if err != nil {
		return changed, err
	}
	v.access = slices.Clone(access)
	return changed, wait(ctx, over)
}

// Revoke implements export.Exporter.
func (x *Exporter) Revoke(ctx context.Context, volume backend.ID, identity string, stay []string) error {
	v := x.find(identity)
	if v == nil {
		return nil
	}
	var err error
	if v.ending.Load() { // nobody is let in any more
		err = wait(ctx, v.gone)
	} else {
		_, err = x.grant(ctx, v, slices.DeleteFunc(slices.Clone(v.access), func(a export.Access) bool { return !slices.Contains(stay, a.Initiator) }))
	}
	if err != nil {
		return fmt.Errorf("volume %s: %w", volume, err)
	}
	return nil
}

// check refuses what cannot be served.
func (x *Exporter) check(e *export.Export) error {
	switch {
	case !export.ValidIdentity(e.Identity):
		return fmt.Errorf("%w: identity %.64q: want 32 hexadecimal digits", backend.ErrInvalid, e.Identity)
	case e.Size <= 0 || e.Size%blockSize != 0:
		return fmt.Errorf("%w: size %d is no multiple of %d bytes", backend.ErrInvalid, e.Size, blockSize)
	case len(e.Access) > maxAccess:
		return fmt.Errorf("%w: %d initiators, at most %d", backend.ErrInvalid, len(e.Access), maxAccess)
	}
	seen := map[string]bool{}
	for _, a := range e.Access {
		if seen[a.Initiator] {
			return fmt.Errorf("%w: initiator %q twice", backend.ErrInvalid, a.Initiator)
		}
		seen[a.Initiator] = true
	}
	return x.proto.check(e.Access)
}

// blockSize is that of all volumes, bytes: it must not differ between the
// transports, as volumes move.
const blockSize = 512

func (x *Exporter) find(identity string) *volume {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.volumes[identity]
}

// serves reports whether the volume is what e wants, but for access and size.
func (v *volume) serves(e *export.Export) bool {
	return v.backing == e.Backing && v.cache == e.Cache && v.discard == e.Discard && e.Size >= v.size && !v.ending.Load()
}

// begin serves a volume: complete, before anybody can log in.
func (x *Exporter) begin(ctx context.Context, e *export.Export) error {
	st, err := x.open(e)
	if err != nil {
		return err
	}
	v := &volume{identity: e.Identity, name: export.Target(x.transport, e.Identity), backing: e.Backing,
		cache: e.Cache, discard: e.Discard, size: e.Size, access: slices.Clone(e.Access), store: st, gone: make(chan struct{})}
	if v.srv, err = x.proto.build(e, st); err != nil {
		return errors.Join(err, st.Close())
	}
	if _, _, err = v.srv.grant(e.Access); err == nil {
		err = x.add(v)
	}
	if err != nil {
		v.end(x)
		return errors.Join(err, v.ended(ctx))
	}
	x.proto.changed()
	return nil
}

// add makes a volume reachable at all portals.
func (x *Exporter) add(v *volume) error {
	x.mu.Lock()
	switch {
	case x.closed:
		x.mu.Unlock()
		return errClosed
	case len(x.volumes) >= maxExports:
		x.mu.Unlock()
		return fmt.Errorf("%w: more than %d volumes are served", backend.ErrNoSpace, maxExports)
	}
	x.volumes[v.identity] = v
	x.mu.Unlock()
	if err := x.proto.Add(v.srv); err != nil {
		return err
	}
	for _, d := range x.doors {
		pc := serve.PortalConfig{Address: d.portal.Address, TPGT: d.portal.Group}
		if _, err := d.Add(v.srv, pc); err != nil {
			return err
		}
	}
	return nil
}

// openStore opens a volume's backing. Whatever lies under it, our own page cache
// does: a volume without a cache has each write flushed by its target.
func openStore(e *export.Export) (target.Store, error) {
	f, err := target.OpenFileWith(e.Backing.Path, target.Options{Thick: !e.Discard})
	if err != nil {
		return nil, err
	}
	if int64(f.Size()) < e.Size {
		return nil, errors.Join(fmt.Errorf("%w: %s has %d bytes, not %d", backend.ErrInvalid, e.Backing.Path, f.Size(), e.Size), f.Close())
	}
	return f, nil
}

// grow makes a volume as large as e says.
func (v *volume) grow(e *export.Export) error {
	have, err := target.SizeOf(v.backing.Path)
	if err == nil && int64(have) < e.Size { // the store's business: growing here would be a guess
		err = fmt.Errorf("%w: %s has %d bytes, not %d", backend.ErrInvalid, v.backing.Path, have, e.Size)
	}
	if err == nil {
		err = v.srv.grow(uint64(e.Size))
	}
	if err != nil {
		return err
	}
	v.size = e.Size
	return nil
}

// wait waits for a drain.
func wait(ctx context.Context, over <-chan struct{}) error {
	select {
	case <-over: // also if both are so
		return nil
	default:
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: access is revoked, and the store is still busy with what was sent before: %w", backend.ErrBusy, ctx.Err())
	}
}

// Remove implements export.Exporter.
func (x *Exporter) Remove(ctx context.Context, volume backend.ID, identity string) error {
	v := x.find(identity)
	if v == nil {
		return nil
	}
	if err := x.remove(ctx, v); err != nil {
		return fmt.Errorf("volume %s: %w", volume, err)
	}
	return nil
}

// remove ends a volume's being served, and returns when nothing of it runs: its
// target ends with its last job. Access goes first, whatever the rest waits for.
func (x *Exporter) remove(ctx context.Context, v *volume) error {
	if _, _, err := v.srv.grant(nil); err != nil {
		return err
	}
	v.end(x)
	return v.ended(ctx)
}

// end takes the volume away from the portals and ends its target, beside the
// caller: whatever a store hangs in, its owner may come back for it.
func (v *volume) end(x *Exporter) {
	if v.ending.Swap(true) {
		return
	}
	x.proto.Remove(v.srv)
	x.proto.changed()
	go func() {
		v.fate = errors.Join(v.srv.Close(), v.store.Flush(), v.store.Close())
		x.mu.Lock()
		if x.volumes[v.identity] == v {
			delete(x.volumes, v.identity)
		}
		x.mu.Unlock()
		close(v.gone)
	}()
}

// ended waits for the end of what end began. That its bytes may not be durable is
// no reason to go on serving it: who wrote them asked for that, and was told.
func (v *volume) ended(ctx context.Context) error {
	if err := wait(ctx, v.gone); err != nil {
		return err
	}
	return v.fate
}

// Resize implements export.Exporter.
func (x *Exporter) Resize(_ context.Context, e export.Export) error {
	v := x.find(e.Identity)
	switch {
	case v == nil || e.Size == v.size:
		return nil
	case e.Size < v.size || e.Size%blockSize != 0:
		return fmt.Errorf("volume %s: %w: %d bytes, it has %d", e.Volume, backend.ErrInvalid, e.Size, v.size)
	}
	if err := v.grow(&e); err != nil {
		return fmt.Errorf("volume %s: %w", e.Volume, err)
	}
	return nil
}
