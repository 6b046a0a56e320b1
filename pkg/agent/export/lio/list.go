package lio

import (
	"context"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/configfs"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Left lists what the kernel serves of ours, for programs that do not use it:
// nothing where it has no such target.
func Left(ctx context.Context) ([]export.Exported, error) {
	fs, err := configfs.OpenIfThere(Root)
	if fs == nil {
		return nil, err
	}
	return (&Exporter{fs: fs}).Exported(ctx)
}

// Exported implements export.Exporter: targets under our names, and backstores
// whose target is gone.
func (x *Exporter) Exported(ctx context.Context) ([]export.Exported, error) {
	e := configfs.NewEdit(ctx, x.fs)
	var out []export.Exported
	seen := map[string]bool{}
	for _, name := range e.List(configfs.Path("").Add("iscsi")) {
		identity, ours := export.Identity(name)
		if !ours {
			continue
		}
		seen[identity] = true
		out = append(out, export.Exported{Identity: identity, Target: name, Initiators: e.List(groupPath(identity).Add("acls"))})
	}
	for _, name := range e.List(corePath()) {
		identity, ours := strings.CutPrefix(name, "v-")
		if ours && export.ValidIdentity(identity) && !seen[identity] {
			out = append(out, export.Exported{Identity: identity, Target: export.Target(backend.ISCSI, identity)})
		}
	}
	return out, e.Err()
}

// Sessions implements export.Exporter. The kernel tells that an initiator is
// logged in, not at which portal, nor how often.
func (x *Exporter) Sessions(ctx context.Context) ([]export.Session, error) {
	all, err := x.Exported(ctx)
	if err != nil {
		return nil, err
	}
	e := configfs.NewEdit(ctx, x.fs)
	var out []export.Session
	for _, v := range all {
		for _, initiator := range v.Initiators {
			if info := e.Raw(aclPath(v.Identity, initiator).Add("info")); strings.Contains(info, "TARG_SESS_STATE_LOGGED_IN") {
				out = append(out, export.Session{Identity: v.Identity, Initiator: initiator})
			}
		}
	}
	return out, e.Err()
}
