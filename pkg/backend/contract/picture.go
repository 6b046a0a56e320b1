package contract

import (
	"fmt"
	"slices"
)

// picture is all that is there, as its owner sees it, without what is random:
// two backends that were asked the same have the same.
func (r *trial) picture() []string {
	r.Helper()
	var all []string
	for _, v := range r.volumes() {
		v.Identity = ""
		all = append(all, volumeText(v))
	}
	for _, s := range r.snapshots() {
		all = append(all, fmt.Sprintf("snapshot %s %q of %s, %d bytes", s.ID, s.Name, s.Of, s.Size))
	}
	for _, p := range r.publications() {
		all = append(all, fmt.Sprintf("publication of %s to %s over %s, read-only %t, shared %t, revoking %t", p.Volume, p.Node, p.Transport, p.ReadOnly, p.Shared, p.Revoking))
	}
	nodes, err := r.b.Fenced(r.ctx)
	r.ok(err, "listing fenced nodes")
	slices.Sort(nodes)
	for _, n := range nodes {
		all = append(all, "fenced "+n)
	}
	return all
}

// details are pictures with all that must stay through a restart.
func (r *trial) details() []string {
	r.Helper()
	all := r.picture()
	for _, v := range r.volumes() {
		all = append(all, fmt.Sprintf("%s, created %s", volumeText(v), v.Created.UTC()))
	}
	for _, s := range r.snapshots() {
		all = append(all, fmt.Sprintf("snapshot %s, created %s", s.ID, s.Created.UTC()))
	}
	for _, p := range r.publications() {
		all = append(all, fmt.Sprintf("publication of %s to %s: initiator %s, epoch %s", p.Volume, p.Node, p.Initiator, p.Epoch))
	}
	return all
}
