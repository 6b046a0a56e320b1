//go:build interop

package device_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/test/interop/tgt"
)

const tgtTarget = "iqn.2026-01.io.csi-mpath:reserved"

// newTgtRig is a rig over Debian's tgt. It keeps nothing through a restart.
func newTgtRig(t *testing.T) (*rig, *tgt.Daemon) {
	t.Helper()
	dir, err := os.MkdirTemp("", "x")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, "lun")
	if err := os.WriteFile(file, make([]byte, 16<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := tgt.Start(t.Context(), tgt.Config{Dir: dir, Name: "a", Target: tgtTarget, File: file, ID: "MPATH0002", Serial: "SN0002"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return newRigOver(&rig{T: t, foreign: &foreign{portals: []string{d.Portal()}, target: tgtTarget}}), d
}

func TestTgtTakesAVolumeFromItsNodeForAnother(t *testing.T) {
	r, _ := newTgtRig(t)
	r.takenOver()
}

func TestTgtThatForgetsRegistrationsIsNotWrittenTo(t *testing.T) {
	r, d := newTgtRig(t)
	r.open(r.reserved(1), 1)
	r.writes(0, 1)
	if err := d.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	q := r.send(blk.Write, 0, 4096, 2)
	if st := r.outcome(q); st == blk.OK || r.dev.Lost() == "" {
		t.Fatalf("a write is answered with %v, lost %q", st, r.dev.Lost())
	}
	r.check(r.over())
	r.node(r.reserved(1), 1).writes(0, 3)
}

func TestTgtKeepsTheReservationOfAKilledProcess(t *testing.T) {
	r, _ := newTgtRig(t)
	cfg := r.reserved(1)
	r.open(cfg, 1)
	r.writes(0, 1)
	next := r.node(r.killed(cfg), 1)
	next.writes(0, 2)
	if next.saw(device.Reserved) != 0 {
		t.Error("it took the volume anew")
	}
	r.check(next.over())
	if keys, held := r.table(); len(keys) != 0 || held {
		t.Errorf("left: %x, held %v", keys, held)
	}
}
