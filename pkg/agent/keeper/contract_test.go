package keeper

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/backend/contract"
)

// subject is the rig as the contract wants it. Its store and exporters outlive a
// crash, as a kernel's do.
func (r *rig) subject() contract.Subject {
	return contract.Subject{
		Backend: r.b, Other: r.k.For("other"), Tenant: "t", Pool: pool0,
		Restart: func(t testing.TB) contract.Subject {
			r.reopen()
			return r.subject()
		},
		Crash: func(t testing.TB, point string, nth int, call func(backend.Backend)) (contract.Subject, bool) {
			if !contract.Interrupt(t, point, nth, func() { call(r.b) }) {
				return r.subject(), false
			}
			r.abandon()
			r.open()
			return r.subject(), true
		},
		Leftovers: func(t testing.TB) []string { return append(r.leftInJournal(), r.leftServed(r.iscsi, r.nvme)...) },
		Calls:     600, // this store reads whole volumes to say what is in them
	}
}

// abandon is what a kill leaves of the keeper.
func (r *rig) abandon() {
	r.k.stop()
	r.k.unlock()
}

// leftInJournal are the files of the state directory.
func (r *rig) leftInJournal() (left []string) {
	for _, dir := range []string{"volumes", "fences"} {
		entries, err := os.ReadDir(filepath.Join(r.dir, dir))
		if err != nil {
			r.t.Fatal(err)
		}
		for _, e := range entries {
			left = append(left, "state file "+e.Name())
		}
	}
	return left
}

func (r *rig) leftServed(all ...export.Exporter) (left []string) {
	for _, x := range all {
		served, err := x.Exported(r.t.Context())
		if err != nil {
			r.t.Fatal(err)
		}
		for _, e := range served {
			left = append(left, fmt.Sprintf("export %s", e.Target))
		}
	}
	return left
}

func TestTheContractOverMemoryAndFakes(t *testing.T) {
	contract.Run(t, func(t *testing.T) contract.Subject {
		s := newRig(t, true).subject()
		s.Transports = []backend.Transport{backend.ISCSI} // the others go over both
		return s
	})
}

func TestTheContractOverSnapshotsThatNeedAnUnpublishedVolume(t *testing.T) {
	contract.Run(t, func(t *testing.T) contract.Subject {
		s := newRig(t, false).subject()
		s.Crash = nil // as over the other
		return s
	})
}
