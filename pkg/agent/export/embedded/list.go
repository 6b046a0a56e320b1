package embedded

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
)

// all are the volumes, in the order of identities.
func (x *Exporter) all() []*volume {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.SortedFunc(maps.Values(x.volumes), func(a, b *volume) int { return cmp.Compare(a.identity, b.identity) })
}

// Exported implements export.Exporter. It lists what is about to end, too.
func (x *Exporter) Exported(context.Context) (out []export.Exported, err error) {
	for _, v := range x.all() {
		out = append(out, export.Exported{Identity: v.identity, Target: v.name, Initiators: v.srv.Granted()})
	}
	return out, nil
}

// Sessions implements export.Exporter.
func (x *Exporter) Sessions(context.Context) (out []export.Session, err error) {
	for _, v := range x.all() {
		for _, a := range v.srv.Attached() {
			out = append(out, export.Session{Identity: v.identity, Initiator: a.Initiator, Portal: a.Portal})
		}
	}
	return out, nil
}
