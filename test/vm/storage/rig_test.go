//go:build vm

package storage

import (
	"errors"
	"os"
	"regexp"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store/directory"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store/lvmthin"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

func TestMain(m *testing.M) {
	// The kernel's iSCSI target looks for a directory that nothing of ours needs.
	os.Exit(kmsg.Main(m, kmsg.Provoked("db_root: cannot open: /etc/target")))
}

// memoryDisk is what a loop device over a file in memory says when it is asked to
// write zeroes; whoever asked writes them himself then.
var memoryDisk = regexp.MustCompile(`operation not supported error, dev loop\d+, sector \d+ op 0x9:\(WRITE_ZEROES\)`)

// group is a volume group with a thin pool, for stores.
type group struct{ *rig.Group }

// vg and thin are its names.
const vg, thin = rig.VolumeGroup, rig.ThinPool

func newGroup(t *testing.T, size int) *group { t.Helper(); return &group{rig.NewGroup(t, size)} }

func (g *group) config() lvmthin.Config {
	return lvmthin.Config{VolumeGroup: vg, ThinPool: thin, Devices: []string{g.Dev}}
}

func (g *group) open(c lvmthin.Config) *lvmthin.Store {
	g.T.Helper()
	s, err := lvmthin.Open(g.T.Context(), c)
	if err != nil {
		g.T.Fatal(err)
	}
	return s
}

func openDirectory(t *testing.T, path string) *directory.Store {
	t.Helper()
	s, err := directory.Open(directory.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// create makes an object of so many bytes.
func create(t *testing.T, s store.Store, spec store.Spec) store.Object {
	t.Helper()
	o, err := s.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func isNoSpace(err error) bool { return errors.Is(err, backend.ErrNoSpace) }
