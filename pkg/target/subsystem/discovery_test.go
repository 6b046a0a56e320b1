package subsystem

import (
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

func TestARecordHasTheFamilyOfItsAddress(t *testing.T) {
	for address, want := range map[string]uint8{"192.0.2.1:4420": nvme.FamilyIPv4, "[2001:db8::1]:4420": nvme.FamilyIPv6, "[fe80::1%eth0]:4420": nvme.FamilyIPv6} {
		m, err := NewMachine(Config{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.AddPortal(serve.PortalConfig{Address: address}); err != nil {
			t.Fatal(err)
		}
		if r := m.records(hostNQN); len(r) != 1 || r[0].Family != want {
			t.Errorf("%s: %+v", address, r)
		}
	}
}
