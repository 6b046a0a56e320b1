package nvmet

import (
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
)

// A name that is taken for ours is one that Target makes, but for its last part.
func FuzzOnlyOurNamesAreOurs(f *testing.F) {
	x := &Exporter{}
	id := strings.Repeat("0a", 16)
	for _, n := range []string{x.Target(id, "nqn.a:b"), "nqn.2025-01.io.csi-mpath:vol:" + id, "iqn.2025-01.io.csi-mpath:vol:" + id + ":0123456789abcdef", ":", "::", ""} {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, nqn string) {
		identity, ours := parse(nqn)
		if !ours {
			return
		}
		want := x.Target(identity, "")
		if !export.ValidIdentity(identity) || len(nqn) != len(want) || nqn[:len(nqn)-suffix] != want[:len(want)-suffix] {
			t.Errorf("%q is taken for %s", nqn, identity)
		}
	})
}
