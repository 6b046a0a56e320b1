package nvmet

import (
	"context"
	"fmt"
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/configfs"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/loop"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
)

// Ensure implements export.Exporter. Who is not named any more goes first, before
// anything can fail that is about those who stay.
func (x *Exporter) Ensure(ctx context.Context, v export.Export) (bool, error) {
	if err := v.Check(backend.NVMe); err != nil {
		return false, err
	}
	e := configfs.NewEdit(ctx, x.fs)
	stay := map[string]bool{}
	for i := range v.Access {
		stay[x.Target(v.Identity, v.Access[i].Initiator)] = true
	}
	x.revoke(e, v.Identity, stay)
	if len(v.Access) == 0 {
		x.release(e, v.Identity)
		return e.Result()
	}
	device, err := loop.Device(ctx, x.loops, v.Identity, v.Backing.Path, v.Backing.Block)
	if err != nil {
		e.Fail(err)
	}
	for i := range v.Access {
		x.admit(e, &v, &v.Access[i], device)
	}
	return e.Result()
}

// admit makes an initiator's subsystem. It is linked to the ports last: what a
// host has seen of it once is fixed (I1).
func (x *Exporter) admit(e *configfs.Edit, v *export.Export, a *export.Access, device string) {
	nqn := x.Target(v.Identity, a.Initiator)
	if x.differs(e, v.Identity, nqn, a, device) {
		x.removeSubsystem(e, nqn)
	}
	p := subsystemPath(nqn)
	e.Dir(p)
	e.Attrs(p, "attr_allow_any_host", "0", "attr_serial", export.Serial(v.Identity), "attr_model", export.Product)
	ns := namespacePath(nqn)
	e.Dir(ns)
	if e.Get(ns.Add("enable")) != "1" {
		e.Attrs(ns, "device_path", device, "device_uuid", export.UUID(v.Identity), "device_nguid", export.UUID(v.Identity), "ana_grpid", "1")
		e.Set(ns.Add("enable"), "1")
	}
	faultpoint.Here("nvmet/namespace-enabled")
	x.host(e, nqn, a)
	x.attach(e, nqn)
	faultpoint.Here("nvmet/subsystem-linked")
}

// differs: the subsystem is there, but is another volume by its names, over
// another device, or asks for a secret where there is none any more. What is
// fixed once it is served is made anew.
func (x *Exporter) differs(e *configfs.Edit, identity, nqn string, a *export.Access, device string) bool {
	p, ns := subsystemPath(nqn), namespacePath(nqn)
	if e.Get(ns.Add("enable")) != "1" {
		return e.Has(ns) // half made, or half gone: the kernel may still wait for requests
	}
	host := hostPath(a.Initiator)
	return e.Get(p.Add("attr_serial")) != export.Serial(identity) || e.Get(p.Add("attr_model")) != export.Product ||
		!has(e, ns, []string{"device_path", device, "device_uuid", export.UUID(identity), "device_nguid", export.UUID(identity)}) ||
		lost(e, host.Add("dhchap_key"), a.Auth.DHCHAP.Host == "") || lost(e, host.Add("dhchap_ctrl_key"), a.Auth.DHCHAP.Controller == "")
}

// lost: there is a secret, and should be none. Not every kernel can forget one.
func lost(e *configfs.Edit, p configfs.Path, none bool) bool { return none && e.Raw(p) != "" }

// host lets exactly this initiator in, with its secrets. A new secret counts from
// the next authentication on.
func (x *Exporter) host(e *configfs.Edit, nqn string, a *export.Access) {
	x.shared.Lock()
	defer x.shared.Unlock()
	p := hostPath(a.Initiator)
	e.Dir(p)
	if keys := a.Auth.DHCHAP; keys.Host != "" {
		if e.Err() == nil && !slices.Contains(e.List(p), "dhchap_key") {
			e.Fail(fmt.Errorf("%w: this kernel's NVMe target cannot ask %s for a secret (CONFIG_NVME_TARGET_AUTH)", backend.ErrUnsupported, a.Initiator))
		}
		e.Secret(p.Add("dhchap_key"), string(keys.Host), "")
		if keys.Controller != "" {
			e.Secret(p.Add("dhchap_ctrl_key"), string(keys.Controller), "")
		}
		e.Attr(p.Add("dhchap_dhgroup"), dhGroup)
	}
	for _, other := range e.List(allowedPath(nqn)) {
		if other != a.Initiator {
			e.Unlink(allowedPath(nqn).Add(other))
		}
	}
	e.Link(p, allowedPath(nqn).Add(a.Initiator))
}

// Resize makes the kernel look at the device again, and tell the hosts.
func (x *Exporter) Resize(ctx context.Context, v export.Export) error {
	if err := v.Check(backend.NVMe); err != nil {
		return err
	}
	if !v.Backing.Block {
		if err := x.loops.Resize(ctx, v.Identity); err != nil {
			return err
		}
	}
	e := configfs.NewEdit(ctx, x.fs)
	for _, nqn := range x.subsystems(e, v.Identity) {
		e.Set(namespacePath(nqn).Add("revalidate_size"), "1")
	}
	return e.Err()
}
