package lio

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/configfs"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
)

// cannotDiscard is what the kernel says about UNMAP over a device that cannot.
var cannotDiscard = []error{syscall.ENOSYS, syscall.EOPNOTSUPP}

// Remove implements export.Exporter.
func (x *Exporter) Remove(ctx context.Context, volume backend.ID, identity string) error {
	if !export.ValidIdentity(identity) {
		return fmt.Errorf("%w: identity %.80q of %s", backend.ErrInvalid, identity, volume)
	}
	e := configfs.NewEdit(ctx, x.fs)
	x.remove(e, identity)
	return e.Err()
}

// Revoke implements export.Exporter.
func (x *Exporter) Revoke(ctx context.Context, volume backend.ID, identity string, stay []string) error {
	if !export.ValidIdentity(identity) {
		return fmt.Errorf("%w: identity %.80q of %s", backend.ErrInvalid, identity, volume)
	}
	e := configfs.NewEdit(ctx, x.fs)
	lower := make([]string, len(stay)) // as the kernel has them
	for i, initiator := range stay {
		lower[i] = strings.ToLower(initiator)
	}
	x.revoke(e, identity, lower)
	return e.Err()
}

// revoke removes the access lists of those who are not in stay. The last step is
// the one that waits: rmdir of a list returns when the initiator's sessions have
// ended, and they end when their commands have (I9). Without the LUN, which goes
// first, the initiator can begin nothing new meanwhile.
func (x *Exporter) revoke(e *configfs.Edit, identity string, stay []string) {
	lists := groupPath(identity).Add("acls")
	for _, initiator := range e.List(lists) {
		if slices.Contains(stay, initiator) {
			continue
		}
		p := lists.Add(initiator)
		for _, m := range e.List(p) {
			if strings.HasPrefix(m, "lun_") {
				e.Unlink(p.Add(m, lunName))
				e.Remove(p.Add(m))
			}
		}
		faultpoint.Here("lio/lun-unmapped")
		e.Remove(p)
		faultpoint.Here("lio/access-removed")
	}
}

// remove undoes all of a volume. Taking the LUN away waits for commands once more,
// whoever sent them.
func (x *Exporter) remove(e *configfs.Edit, identity string) {
	g, store := groupPath(identity), storePath(identity)
	if e.Has(g) {
		e.Attr(g.Add("enable"), "0")
		x.revoke(e, identity, nil)
		e.Unlink(lunPath(identity).Add(store.Name()))
		e.Remove(lunPath(identity))
		for _, np := range e.List(g.Add("np")) {
			e.Remove(g.Add("np", np))
		}
		e.Remove(g)
	}
	e.Remove(targetPath(identity))
	faultpoint.Here("lio/target-removed")
	e.Remove(store)
	x.prune(e)
	if e.Err() == nil {
		e.Fail(x.loops.Release(e.Context(), identity))
	}
}

// prune removes the directory of backstores with the last one.
func (x *Exporter) prune(e *configfs.Edit) {
	x.shared.Lock()
	defer x.shared.Unlock()
	e.TryRemove(corePath(), syscall.ENOTEMPTY)
}
