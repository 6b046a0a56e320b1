package contract_test

import (
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/backend/contract"
	"github.com/csi-mpath/csi-mpath/pkg/backend/memory"
)

const mib = 1 << 20

// twin is the memory twin with one pool.
func twin(p backend.Pool) contract.Subject {
	p.Name, p.Step, p.Min, p.Max = "pool", 4*mib, 4*mib, 1<<40
	s := memory.New(memory.Config{
		Pools: []backend.Pool{p},
		Room:  map[string]int64{"pool": 1 << 30},
		Portals: map[backend.Transport][]backend.Portal{
			backend.ISCSI: {{Address: "127.0.0.1:3260", Group: 1}},
			backend.NVMe:  {{Address: "127.0.0.1:4420", Group: 1}},
		},
	})
	return contract.Subject{Backend: s.For("mine"), Tenant: "mine", Other: s.For("theirs"), Pool: "pool", Calls: 10000}
}

var both = []backend.Transport{backend.ISCSI, backend.NVMe}

func TestTheMemoryTwinPassesTheContract(t *testing.T) {
	for name, p := range map[string]backend.Pool{
		"all":              {Transports: both, Snapshots: true, SnapshotsInUse: true},
		"noSnapshotsInUse": {Transports: both, Snapshots: true},
		"noSnapshots":      {Transports: both},
		"iscsiOnly":        {Transports: both[:1], Snapshots: true, SnapshotsInUse: true},
	} {
		t.Run(name, func(t *testing.T) {
			contract.Run(t, func(*testing.T) contract.Subject { return twin(p) })
		})
	}
}
