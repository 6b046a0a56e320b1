//go:build interop

package interop

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/test/host"
	"github.com/csi-mpath/csi-mpath/test/node"
	"github.com/csi-mpath/csi-mpath/test/probe"
)

// staged is a volume of an agent's on a node, under load.
func staged(ctx context.Context, t *testing.T, b backend.Backend, tr backend.Transport) *probe.Probe {
	t.Helper()
	name := "iqn.2026-01.io.test:node"
	if tr == backend.NVMe {
		name = "nqn.2026-01.io.test:node"
	}
	const size = 256 << 20
	v, err := b.CreateVolume(ctx, backend.CreateVolume{Name: string(tr), Pool: host.Pool, Size: backend.Size{Required: size}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.Publish(ctx, backend.Publish{Volume: v.ID, Node: "node", Initiator: name, Transport: tr})
	if err != nil {
		t.Fatal(err)
	}
	vol, err := node.Open(ctx, c, backend.Auth{}, 2*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := vol.Close(); err != nil {
			t.Error(err)
		}
	})
	p, err := probe.Start(ctx, vol.Socket, probe.Options{Size: size, Workers: 4})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestNodesUnderLoadSeeNoErrorWhenTheAgentIsKilled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	h, err := host.New(os.Getenv("CSI_MPATH_BIN"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := h.Start(ctx); err != nil {
		t.Fatal(err)
	}
	client, err := h.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	probes := map[backend.Transport]*probe.Probe{}
	for _, tr := range []backend.Transport{backend.ISCSI, backend.NVMe} {
		probes[tr] = staged(ctx, t, client, tr)
	}
	all := func(what string) {
		for tr, p := range probes {
			if err := p.More(ctx, 300); err != nil {
				t.Fatalf("%s, %s: %v", tr, what, err)
			}
		}
	}
	for kill := range 5 {
		all(fmt.Sprintf("before kill %d", kill))
		begun := map[backend.Transport]time.Duration{}
		for tr, p := range probes {
			begun[tr] = p.Now()
		}
		h.Kill()
		if err := h.Start(ctx); err != nil {
			t.Fatal(err)
		}
		all(fmt.Sprintf("after kill %d", kill))
		for tr, p := range probes {
			worst, n := p.Worst(begun[tr], p.Now())
			t.Logf("kill %d: %s: the longest of %d requests took %v", kill, tr, n, worst.Round(time.Millisecond))
		}
	}
	for tr, p := range probes {
		if err := p.Stop(); err != nil {
			t.Errorf("%s: %v", tr, err)
		}
	}
}
