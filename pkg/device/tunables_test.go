package device_test

import (
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/tunable"
)

// settings are defaults but for what is given.
func settings(t *testing.T, values map[string]string) tunable.Settings {
	t.Helper()
	s, err := tunable.Parse(values)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// from reports whether path i is bound to an address.
func (r *rig) from(i int, address string) bool {
	p := r.dev.Status().Paths[i]
	return p.Local != "" && strings.HasPrefix(p.Local, address+":") && r.dev.Status().Usable == 2
}

func TestAChangedSourceAddressCountsFromAPathsNextLogin(t *testing.T) {
	overBoth(t, func(t *testing.T, over kind) {
		r := over(t, 2)
		r.open(r.config(), 2)
		if err := r.dev.Apply(settings(t, map[string]string{"sourceAddresses": "127.0.0.2,127.0.0.3"})); err != nil {
			t.Fatal(err)
		}
		if q := r.do(blk.Write, 0, 4096, 1); q.Status != blk.OK || !r.from(0, "127.0.0.1") || !r.from(1, "127.0.0.1") || r.saw(datapath.PathDown) != 0 {
			t.Fatalf("a path that worked was taken down: %v, %+v", q.Status, r.dev.Status())
		}
		r.portals[0].Drop()
		r.until("path 0 is back from its new address", func() bool { return r.from(0, "127.0.0.2") })
		if !r.from(1, "127.0.0.1") {
			t.Errorf("its sibling was dialled as well (I11): %+v", r.dev.Status().Paths[1])
		}
		r.portals[1].Drop()
		r.until("path 1 is back from its new address", func() bool { return r.from(1, "127.0.0.3") })
		if err := r.dev.Apply(settings(t, map[string]string{"sourceAddresses": "127.0.0.2,127.0.0.3,127.0.0.4"})); err == nil {
			t.Error("three addresses for two portals were taken")
		}
	})
}
