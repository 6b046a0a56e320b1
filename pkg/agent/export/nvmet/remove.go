package nvmet

import (
	"context"
	"fmt"
	"syscall"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/configfs"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
)

// Remove implements export.Exporter.
func (x *Exporter) Remove(ctx context.Context, volume backend.ID, identity string) error {
	if !export.ValidIdentity(identity) {
		return fmt.Errorf("%w: identity %.80q of %s", backend.ErrInvalid, identity, volume)
	}
	e := configfs.NewEdit(ctx, x.fs)
	x.revoke(e, identity, nil)
	x.release(e, identity)
	return e.Err()
}

// release lets go of the loop device.
func (x *Exporter) release(e *configfs.Edit, identity string) {
	if e.Err() == nil {
		e.Fail(x.loops.Release(e.Context(), identity))
	}
}

// Revoke implements export.Exporter.
func (x *Exporter) Revoke(ctx context.Context, volume backend.ID, identity string, stay []string) error {
	if !export.ValidIdentity(identity) {
		return fmt.Errorf("%w: identity %.80q of %s", backend.ErrInvalid, identity, volume)
	}
	e := configfs.NewEdit(ctx, x.fs)
	nqns := map[string]bool{}
	for _, initiator := range stay {
		nqns[x.Target(identity, initiator)] = true
	}
	x.revoke(e, identity, nqns)
	return e.Err()
}

// revoke removes the subsystems of a volume that are not in stay.
func (x *Exporter) revoke(e *configfs.Edit, identity string, stay map[string]bool) {
	for _, nqn := range x.subsystems(e, identity) {
		if !stay[nqn] {
			x.removeSubsystem(e, nqn)
		}
	}
}

// removeSubsystem returns when nothing that came through the subsystem can change
// the volume any more (I9):
//
//  1. the host may not connect again;
//  2. its controllers end: their sockets are shut down;
//  3. no command finds the namespace any more, and those that did have ended;
//  4. the namespace goes. Step 3 alone is no proof, since the kernel lets it be
//     asked twice and only the first call waits, maybe on behalf of an agent that
//     was killed meanwhile; rmdir waits for that call.
func (x *Exporter) removeSubsystem(e *configfs.Edit, nqn string) {
	for _, host := range e.List(allowedPath(nqn)) {
		e.Unlink(allowedPath(nqn).Add(host))
	}
	faultpoint.Here("nvmet/host-unlinked")
	x.detach(e, nqn)
	faultpoint.Here("nvmet/controllers-ended")
	ns := namespacePath(nqn)
	if e.Get(ns.Add("enable")) == "1" {
		e.Set(ns.Add("enable"), "0")
	}
	e.Remove(ns)
	faultpoint.Here("nvmet/namespace-removed")
	x.forget(e, nqn)
	e.Remove(subsystemPath(nqn))
}

// forget removes the host that the subsystem was for, unless somebody else lets it
// in. The subsystem's name tells which it is, whoever unlinked it.
func (x *Exporter) forget(e *configfs.Edit, nqn string) {
	x.shared.Lock()
	defer x.shared.Unlock()
	identity, _ := parse(nqn)
	for _, host := range e.List(configfs.Path("").Add("hosts")) {
		if x.Target(identity, host) == nqn {
			e.TryRemove(hostPath(host), syscall.EBUSY)
		}
	}
}

// subsystems are those of a volume.
func (x *Exporter) subsystems(e *configfs.Edit, identity string) (nqns []string) {
	for _, nqn := range e.List(configfs.Path("").Add("subsystems")) {
		if of, ours := parse(nqn); ours && of == identity {
			nqns = append(nqns, nqn)
		}
	}
	return nqns
}

// Left lists what the kernel serves of ours, for programs that do not use it:
// nothing where it has no such target.
func Left(ctx context.Context) ([]export.Exported, error) {
	fs, err := configfs.OpenIfThere(Root)
	if fs == nil {
		return nil, err
	}
	return (&Exporter{fs: fs}).Exported(ctx)
}

// Exported implements export.Exporter.
func (x *Exporter) Exported(ctx context.Context) ([]export.Exported, error) {
	e := configfs.NewEdit(ctx, x.fs)
	var out []export.Exported
	at := map[string]int{}
	for _, nqn := range e.List(configfs.Path("").Add("subsystems")) {
		identity, ours := parse(nqn)
		if !ours {
			continue
		}
		i, seen := at[identity]
		if !seen {
			i = len(out)
			at[identity] = i
			out = append(out, export.Exported{Identity: identity, Target: export.Target(backend.NVMe, identity)})
		}
		out[i].Initiators = append(out[i].Initiators, e.List(allowedPath(nqn))...)
	}
	return out, e.Err()
}

// Sessions is empty: the kernel does not tell who is connected.
func (x *Exporter) Sessions(context.Context) ([]export.Session, error) { return nil, nil }
