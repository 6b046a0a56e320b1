package embedded

import (
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/test/node"
	"github.com/csi-mpath/csi-mpath/test/probe"
)

// load keeps requests in flight on a volume, as a node has it.
func (r *rig) load(e export.Export, a export.Access) *probe.Probe {
	r.t.Helper()
	v, err := node.Open(within(r.t), r.connection(e, a), a.Auth, 2*long)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := v.Close(); err != nil {
			r.t.Error(err)
		}
	})
	p, err := probe.Start(within(r.t), v.Socket, probe.Options{Size: uint64(e.Size), Workers: 4})
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

func more(t testing.TB, p *probe.Probe, n int) {
	t.Helper()
	if err := p.More(within(t), n); err != nil {
		t.Fatal(err)
	}
}

func TestNodesUnderLoadSeeNoErrorWhenTheTargetIsRestarted(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r := newRig(t, tr)
		e, a := r.volume(1, 256*mib), r.access(1, 1)
		r.ensure(e, a)
		p := r.load(e, a)
		for range 2 {
			more(t, p, 200)
			r.restart()
			r.ensure(e, a)
		}
		more(t, p, 200)
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestNodesUnderLoadSeeNothingOfAQuietVolumeButTime(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r := newRig(t, tr)
		e, a := r.volume(1, 256*mib), r.access(1, 1)
		r.ensure(e, a)
		p := r.load(e, a)
		for range 5 {
			more(t, p, 50)
			resume, err := r.x.Quiesce(within(t), e.Identity)
			if err != nil {
				t.Fatal(err)
			}
			resume()
		}
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
}
