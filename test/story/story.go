// Package story tells a volume's life, from its creation until nothing is left of
// it, in a cluster of real processes.
package story

import (
	"context"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/test/cluster"
	"github.com/csi-mpath/csi-mpath/test/kubelet"
)

// Sizes, bytes. XFS takes nothing below 300 MiB.
const (
	mib     = 1 << 20
	small   = 320 * mib
	larger  = 384 * mib
	largest = 448 * mib
)

// Online says whether a kind of volume grows while it is in use here.
type Online func(kind string) bool

// All are told at the same time in one cluster: each kind of volume, over both
// transports.
func All(t *testing.T, c *cluster.Cluster, online Online) {
	for _, transport := range []backend.Transport{backend.ISCSI, backend.NVMe} {
		for _, kind := range []string{"ext4", "xfs", kubelet.Raw} {
			t.Run(string(transport)+"/"+kind, func(t *testing.T) {
				t.Parallel()
				One(t, c, transport, kind, online(kind))
			})
		}
	}
}

// One is told of one kind of volume over one transport. online says whether it grows
// while it is in use here.
func One(t *testing.T, c *cluster.Cluster, transport backend.Transport, kind string, online bool) {
	life(begin(t, c, transport, kind), online)
}

// life is the story.
func life(s *teller, online bool) {
	here, there := s.c.Nodes[0], s.c.Nodes[1]

	v := s.create("source", small, nil)
	on := s.publish(v, here)
	on.Up()

	first := s.write(on, 0)
	s.losePath(first)
	if online {
		s.expand(on, larger)
		s.ends(first)
	} else {
		s.ends(first)
		s.expandAway(on, larger)
	}
	s.holds(on, first)

	second := s.write(on, 1)
	snapshot := s.snapshot(v, "moment")
	s.moves(second)

	clone := s.create("clone", largest, from(snapshot))
	cloned := s.publish(clone, here)
	cloned.Up()
	s.holds(cloned, first)
	s.longer(cloned, on)
	s.moves(second)

	s.unpublish(v, here)
	s.stopped(second)
	s.holds(cloned, first)

	away := s.publish(v, there)
	away.Up()
	s.holds(away, first, second)
	third := s.write(away, 2)
	s.moves(third)
	s.ends(third)
	away.Down()
	s.unpublish(v, there)

	back := s.publish(v, here) // where the one before still is
	back.Up()
	s.holds(back, first, second, third)
	s.ends(s.write(cloned, 2))

	for _, x := range []*kubelet.Volume{back, cloned} {
		x.Down()
	}
	s.unpublish(v, here)
	s.unpublish(clone, here)
	s.forget(snapshot)
	s.remove(clone)
	s.remove(v)
}

// ctx bounds what must come in the end.
func (s *teller) ctx() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	s.Cleanup(cancel)
	return ctx
}
