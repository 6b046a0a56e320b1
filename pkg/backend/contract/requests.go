package contract

import (
	"errors"
	"fmt"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

var requestChecks = []check{
	{"AnyTextIsAName", 0, anyTextIsAName},
	{"WhatIsNoNameIsInvalid", 0, whatIsNoNameIsInvalid},
	{"HostileIDsReachNothing", 0, hostileIDsReachNothing},
	{"WhatIsNotThereIsNotFound", 0, whatIsNotThereIsNotFound},
}

func anyTextIsAName(r *trial) {
	for _, name := range []string{
		strings.Repeat("n", backend.MaxName), strings.Repeat("ü", backend.MaxName/2), "../../etc/passwd", "a/b", ".", "..", "-", "--help", "$(id)", "`id`;", "a b", `"'\`, "%s%n", "日本", "A", "a",
	} {
		v := r.create(r.asks(name, 1))
		if v.Name != name || v.ID.Check() != nil {
			r.Errorf("%q: got volume %s with name %q", name, v.ID, v.Name)
		}
		r.sameVolume(r.create(r.asks(name, 1)), v, fmt.Sprintf("%q again", name))
		if r.pool.Snapshots {
			s := r.snapshot(name, v.ID)
			if s.Name != name || s.ID.Check() != nil || s.ID == v.ID {
				r.Errorf("%q: got snapshot %s with name %q", name, s.ID, s.Name)
			}
			r.ok(r.b.DeleteSnapshot(r.ctx, s.ID), "deleting the snapshot")
		}
		r.ok(r.b.DeleteVolume(r.ctx, v.ID), "deleting it")
	}
	r.isEmptyBut()
	r.nothingIsLeft()
}

func whatIsNoNameIsInvalid(r *trial) {
	v := r.create(r.asks("vol", 1))
	for what, ask := range map[string]backend.CreateVolume{
		"no name":           r.asks("", 1),
		"too long a name":   r.asks(strings.Repeat("n", backend.MaxName+1), 1),
		"no pool":           {Name: "x"},
		"a path as pool":    {Name: "x", Pool: "../" + r.pool.Name},
		"both sources":      {Name: "x", Pool: r.pool.Name, Source: backend.Source{Volume: v.ID, Snapshot: v.ID}},
		"a path as source":  {Name: "x", Pool: r.pool.Name, Source: backend.Source{Volume: backend.ID{Pool: r.pool.Name, Object: "../v"}}},
		"too many tunables": {Name: "x", Pool: r.pool.Name, Tunables: tunables(backend.MaxTunables+1, 1)},
		"too long tunables": {Name: "x", Pool: r.pool.Name, Tunables: tunables(1, backend.MaxTunablesBytes)},
	} {
		_, err := r.b.CreateVolume(r.ctx, ask)
		r.want(err, what, backend.ErrInvalid)
	}
	_, err := r.b.TuneVolume(r.ctx, v.ID, tunables(backend.MaxTunables+1, 1))
	r.want(err, "tuned with too many", backend.ErrInvalid)
	_, err = r.b.CreateSnapshot(r.ctx, backend.CreateSnapshot{Of: v.ID})
	r.want(err, "a snapshot without a name", backend.ErrInvalid)
	r.want(r.b.Fence(r.ctx, ""), "fencing no node", backend.ErrInvalid)
	for _, node := range []string{"", "../n", "a/b", "n\n", "n\x00", strings.Repeat("n", backend.MaxNode+1)} {
		_, err := r.b.Publish(r.ctx, r.to(v.ID, node))
		r.want(err, fmt.Sprintf("node %q", node), backend.ErrInvalid)
	}
	for _, name := range []string{"", "x", "../x", initiator(r.transport, "a/b"), initiator(r.transport, ".."+"/x"), initiator(r.transport, "a b"), initiator(r.transport, "a\n"), initiator(r.transport, strings.Repeat("x", 223))} {
		p := r.to(v.ID, "node")
		p.Initiator = name
		_, err := r.b.Publish(r.ctx, p)
		r.want(err, fmt.Sprintf("initiator %q", name), backend.ErrInvalid)
	}
	p := r.to(v.ID, "node")
	p.Transport = "fc"
	_, err = r.b.Publish(r.ctx, p)
	r.want(err, "an unknown transport", backend.ErrInvalid, backend.ErrUnsupported)
	r.isEmptyBut("vol")
}

// tunables are n, the value of each size bytes long.
func tunables(n, size int) map[string]string {
	t := make(map[string]string)
	for i := range n {
		t[fmt.Sprintf("t%d", i)] = strings.Repeat("x", size)
	}
	return t
}

func hostileIDsReachNothing(r *trial) {
	v := r.create(r.asks("vol", 1))
	for _, id := range []backend.ID{
		{}, {Pool: r.pool.Name}, {Object: v.ID.Object}, {Pool: r.pool.Name, Object: "../" + r.pool.Name + "/" + v.ID.Object}, {Pool: ".", Object: v.ID.Object},
		{Pool: r.pool.Name, Object: v.ID.Object + "/"}, {Pool: r.pool.Name, Object: v.ID.Object + "\x00"}, {Pool: r.pool.Name, Object: strings.ToUpper(v.ID.Object)},
		{Pool: r.pool.Name, Object: strings.Repeat("v", 1000)}, {Pool: r.pool.Name, Object: "--force"}, {Pool: r.pool.Name + "/", Object: v.ID.Object},
	} {
		for what, err := range r.everyVerb(id) {
			if err == nil && (strings.HasPrefix(what, "Delete") || what == "Unpublish") {
				continue
			}
			r.want(err, fmt.Sprintf("%s of %q", what, id), backend.ErrInvalid, backend.ErrNotFound)
		}
	}
	r.isEmptyBut("vol")
}

// everyVerb calls what takes an ID.
func (r *trial) everyVerb(id backend.ID) map[string]error {
	out := make(map[string]error)
	_, out["Volume"] = r.b.Volume(r.ctx, id)
	_, out["Snapshot"] = r.b.Snapshot(r.ctx, id)
	_, out["ExpandVolume"] = r.b.ExpandVolume(r.ctx, id, backend.Size{Required: r.size(2)})
	_, out["TuneVolume"] = r.b.TuneVolume(r.ctx, id, nil)
	_, out["CreateSnapshot"] = r.b.CreateSnapshot(r.ctx, backend.CreateSnapshot{Name: "s", Of: id})
	_, out["Publish"] = r.b.Publish(r.ctx, r.to(id, "node"))
	out["Unpublish"] = r.b.Unpublish(r.ctx, id, "node")
	out["DeleteVolume"] = r.b.DeleteVolume(r.ctx, id)
	out["DeleteSnapshot"] = r.b.DeleteSnapshot(r.ctx, id)
	return out
}

func whatIsNotThereIsNotFound(r *trial) {
	gone := backend.ID{Pool: r.pool.Name, Object: backend.ObjectName(backend.VolumeObject, r.s.Tenant, "gone")}
	for what, err := range r.everyVerb(gone) {
		switch {
		case strings.HasPrefix(what, "Delete") || what == "Unpublish":
			if err != nil {
				r.Errorf("%s of nothing: %v", what, err)
			}
		case what == "CreateSnapshot" && errors.Is(err, backend.ErrUnsupported):
		default:
			r.want(err, what+" of nothing", backend.ErrNotFound)
		}
	}
	_, err := r.b.CreateVolume(r.ctx, backend.CreateVolume{Name: "x", Pool: "no-such-pool"})
	r.want(err, "in a pool that does not exist", backend.ErrNotFound)
	r.isEmptyBut()
}
