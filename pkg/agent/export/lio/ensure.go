package lio

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/configfs"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/loop"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
)

// Ensure implements export.Exporter. Who is not named any more goes first, before
// anything can fail that is about those who stay.
func (x *Exporter) Ensure(ctx context.Context, v export.Export) (bool, error) {
	if err := v.Check(backend.ISCSI); err != nil {
		return false, err
	}
	e := configfs.NewEdit(ctx, x.fs)
	if len(v.Access) == 0 {
		x.remove(e, v.Identity)
		return e.Result()
	}
	x.revoke(e, v.Identity, names(v.Access))
	x.store(e, &v, x.device(e, &v))
	secrets := slices.ContainsFunc(v.Access, hasSecret)
	x.target(e, v.Identity, secrets)
	for i := range v.Access {
		x.admit(e, v.Identity, &v.Access[i], secrets)
	}
	e.Attr(groupPath(v.Identity).Add("enable"), "1")
	return e.Result()
}

// names are those of the initiators, as the kernel has them.
func names(all []export.Access) []string {
	out := make([]string, len(all))
	for i, a := range all {
		out[i] = strings.ToLower(a.Initiator)
	}
	return out
}

// device is the block device of the backing. If the volume is served from another,
// or under another name, all of it goes first: both are fixed.
func (x *Exporter) device(e *configfs.Edit, v *export.Export) string {
	device := x.open(e, v)
	if x.differs(e, v.Identity, device) {
		x.remove(e, v.Identity)
		device = x.open(e, v)
	}
	return device
}

func (x *Exporter) open(e *configfs.Edit, v *export.Export) string {
	if e.Err() != nil {
		return ""
	}
	device, err := loop.Device(e.Context(), x.loops, v.Identity, v.Backing.Path, v.Backing.Block)
	if err != nil {
		e.Fail(err)
	}
	return device
}

// differs: the backstore is there, and is not over that device, or not the volume
// by its name.
func (x *Exporter) differs(e *configfs.Edit, identity, device string) bool {
	p := storePath(identity)
	if !e.Has(p) || e.Get(p.Add("enable")) != "1" {
		return false
	}
	return e.Get(p.Add("udev_path")) != device || e.Get(p.Add("wwn", "vpd_unit_serial")) != identity
}

// store makes the backstore. Its names are fixed as soon as it is exported (I1).
func (x *Exporter) store(e *configfs.Edit, v *export.Export, device string) {
	p := storePath(v.Identity)
	x.shared.Lock()
	e.Dir(corePath())
	e.Dir(p)
	x.shared.Unlock()
	if e.Get(p.Add("enable")) != "1" {
		e.Set(p.Add("control"), "udev_path="+device)
		e.Attr(p.Add("udev_path"), device)
		e.Set(p.Add("enable"), "1")
	}
	faultpoint.Here("lio/store-enabled")
	e.Attrs(p.Add("wwn"), "vpd_unit_serial", v.Identity, "vendor_id", export.Vendor, "product_id", export.Product)
	// EXTENDED COPY would let an initiator copy between volumes.
	e.Attr(p.Add("attrib", "emulate_3pc"), "0")
	x.discard(e, p.Add("attrib", "emulate_tpu"), v.Discard)
}

// discard switches UNMAP on or off. A device that cannot discard is left without.
func (x *Exporter) discard(e *configfs.Edit, p configfs.Path, on bool) {
	if want := configfs.Bit(on); e.Get(p) != want {
		e.Try(p, want, cannotDiscard...)
	}
}

// hasSecret reports whether an initiator has to prove who it is.
func hasSecret(a export.Access) bool { return a.Auth.CHAP.Secret != "" }

// target makes target, portal group, portals and LUN. secrets: somebody has one.
func (x *Exporter) target(e *configfs.Edit, identity string, secrets bool) {
	g := groupPath(identity)
	e.Dir(targetPath(identity).Parent()) // the kernel's iSCSI target is there when somebody asks for it
	e.Dir(targetPath(identity))
	e.Dir(g)
	// Nobody gets in, or sees that there is a target, without a list of his own.
	e.Attrs(g.Add("attrib"), "authentication", configfs.Bit(secrets), "generate_node_acls", "0", "cache_dynamic_acls", "0",
		"demo_mode_write_protect", "1", "demo_mode_discovery", "0", "default_cmdsn_depth", fmt.Sprint(depth))
	x.np(e, g.Add("np"))
	e.Dir(lunPath(identity))
	e.Link(storePath(identity), lunPath(identity).Add(storePath(identity).Name()))
	faultpoint.Here("lio/lun-linked")
}

// np makes exactly the portals of the configuration.
func (x *Exporter) np(e *configfs.Edit, dir configfs.Path) {
	var want []string
	for _, at := range x.listen {
		want = append(want, at.String())
		e.Dir(dir.Add(at.String()))
	}
	for _, have := range e.List(dir) {
		if !slices.Contains(want, have) {
			e.Remove(dir.Add(have))
		}
	}
}

// admit gives an initiator access. Its secrets and its rights are there before the
// LUN is.
func (x *Exporter) admit(e *configfs.Edit, identity string, a *export.Access, secrets bool) {
	p := aclPath(identity, a.Initiator)
	e.Dir(p)
	c := a.Auth.CHAP
	for _, f := range []struct{ name, value string }{
		{"userid", c.User}, {"password", string(c.Secret)}, {"userid_mutual", c.MutualUser}, {"password_mutual", string(c.MutualSecret)},
	} {
		e.Secret(p.Add("auth", f.name), f.value, "NULL")
	}
	switch own := p.Add("attrib", "authentication"); {
	case e.Raw(own) != "":
		e.Attr(own, configfs.Bit(hasSecret(*a)))
	case secrets != hasSecret(*a): // kernels before 6.1 have it for all or nobody
		e.Fail(fmt.Errorf("%w: this kernel's target cannot let %s in without a secret where others have one", backend.ErrUnsupported, a.Initiator))
	}
	m := p.Add(lunName)
	if !e.Dir(m) && e.Get(m.Add("write_protect")) == "" {
		// The link is still there, but the LUN it is to was taken away and came back:
		// the kernel has forgotten the one behind the link.
		e.Unlink(m.Add(lunName))
	}
	e.Link(lunPath(identity), m.Add(lunName))
	e.Attr(m.Add("write_protect"), configfs.Bit(a.ReadOnly))
}

// Resize makes the loop device as long as its file. There is nobody to tell: LIO
// reads a device's size at each READ CAPACITY, and has no way to announce it.
func (x *Exporter) Resize(ctx context.Context, v export.Export) error {
	if err := v.Check(backend.ISCSI); err != nil || v.Backing.Block {
		return err
	}
	return x.loops.Resize(ctx, v.Identity)
}
