//go:build interop

package interop

import (
	"testing"

	"github.com/csi-mpath/csi-mpath/test/interop/tgt"
)

func TestAKilledTargetDaemonComesBackOnItsPort(t *testing.T) {
	p, err := tgt.StartPair(t.Context(), 64<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Stop() }()
	was := p.A.Portal()
	p.A.Kill()
	if p.A.Alive() || !p.B.Alive() {
		t.Fatalf("after the kill: a alive %v, b alive %v", p.A.Alive(), p.B.Alive())
	}
	if err := p.A.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.A.Portal() != was {
		t.Fatalf("portal moved from %s to %s", was, p.A.Portal())
	}
}
