//go:build vm

package agent

import (
	"sync"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/test/node"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// knock logs in as the evicted node, again and again at each portal, and writes,
// until the story's eviction is over.
func (x *story) knock(over <-chan struct{}) (wait func()) {
	var all sync.WaitGroup
	for portal := range x.Portals() {
		all.Go(func() {
			b := make([]byte, 4096)
			for {
				select {
				case <-over:
					return
				default:
				}
				p, err := node.Dial(x.ctx(), x.connection(x.v, x.evicted), portal, x.evicted.Auth)
				if err != nil {
					continue
				}
				out := make(chan error, 1)
				go func() { out <- p.Write(b, 0) }()
				select {
				case <-out:
				case <-over:
				}
				p.Close()
			}
		})
	}
	return all.Wait
}

// A node that logs in all the time holds its eviction up for no longer than it
// takes, and writes nothing after it.
func TestKnockingHoldsNoEvictionUp(t *testing.T) {
	kinds(t, func(t *testing.T, s *server) {
		d := slow(t, held)
		var took []time.Duration
		for round := range rounds() {
			x := newStory(&server{s.Exporter, t, s.kind}, d, round, false)
			over := make(chan struct{})
			wait := x.knock(over)
			rig.Must(t, x.holds(1))
			at := time.Now()
			x.ensure(x.v)
			took = append(took, time.Since(at))
			then := x.bytes()
			close(over)
			wait()
			if n := x.late(then); n > 0 {
				t.Errorf("%d blocks changed after the eviction", n)
			}
			x.end()
			x.refused(x.v, x.evicted)
		}
		t.Logf("evictions took %v", took)
	})
}
