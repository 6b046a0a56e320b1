package kubelet

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// Size is what a new volume of Own's has, bytes: what XFS takes at least.
const Size int64 = 400 << 20

// Own is a volume of a target of ours in this process, for a node plugin without a
// controller.
type Own struct {
	*Volume
	Target  *target.Server
	Portals []*target.Portal
}

// New makes a volume with two portals, for a node plugin whose socket is in a
// directory.
func New(t testing.TB, dir, kind string) *Own {
	t.Helper()
	v := &Own{Volume: On(t, nil, dir, "vol", kind)}
	// A sparse file: memory of this size, copied when it grows, adds up over the
	// volumes of one process until a small machine has none.
	path := filepath.Join(dir, "disk")
	v.must(os.WriteFile(path, nil, 0o600))
	v.must(os.Truncate(path, Size))
	store, err := target.OpenFile(path)
	v.must(err)
	t.Cleanup(func() { _ = store.Close() })
	v.Target, err = target.New(target.Config{Name: "iqn.2026-01.test:vol", LUNs: []target.LUN{{Number: 1, Store: store}}})
	v.must(err)
	t.Cleanup(func() { _ = v.Target.Close() })
	for range 2 {
		p, err := v.Target.ListenPortal("127.0.0.1:0", target.PortalConfig{TPGT: 1})
		v.must(err)
		v.Portals = append(v.Portals, p)
	}
	v.PublishContext = v.published()
	v.csi = csi.NewNodeClient(Dial(t, v.Endpoint()))
	return v
}

func (v *Own) must(err error) {
	v.Helper()
	if err != nil {
		v.Fatal(err)
	}
}

// Endpoint is where the node plugin is to serve.
func (v *Own) Endpoint() string { return "unix://" + v.dir + "/csi" }

// published is what a controller's publication would say.
func (v *Own) published() map[string]string {
	v.Helper()
	a := attrs.Attachment{Fencing: attrs.FencingBackend, Connection: backend.Connection{Transport: backend.ISCSI, Target: v.Target.Name(), LUN: 1,
		Initiator: "iqn.2026-01.test:n1:e1", Epoch: "e1", Content: backend.ContentBlank}}
	for _, p := range v.Portals {
		a.Portals = append(a.Portals, backend.Portal{Address: p.Addr(), Group: 1})
	}
	c, err := attrs.PublishContext(a)
	v.must(err)
	return c
}

// Grow makes the volume larger at the storage, and the node see it.
func (v *Own) Grow(size int64) {
	v.Helper()
	v.must(v.Target.Grow(1, uint64(size)))
	v.Expand(size)
}
