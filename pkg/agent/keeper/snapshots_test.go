package keeper

import (
	"errors"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// copies makes a snapshot and a clone of a published volume, in a pool whose
// copies are not of one moment.
func copies(t *testing.T, quiescent bool) (r *rig, errs []error) {
	r = newRig(t, false)
	r.iscsi.quiescent, r.nvme.quiescent = quiescent, quiescent
	r.reopen() // Info is made then
	v := r.create("v")
	r.publish(to(v.ID, "n"))
	_, err := r.b.CreateSnapshot(t.Context(), backend.CreateSnapshot{Name: "s", Of: v.ID})
	_, err2 := r.b.CreateVolume(t.Context(), backend.CreateVolume{Name: "c", Pool: pool0, Source: backend.Source{Volume: v.ID}})
	if n := r.iscsi.quiet[v.Identity]; n != 0 {
		t.Errorf("writers are still held back, %d times", n)
	}
	info, errInfo := r.b.Info(t.Context())
	if errInfo != nil || info.Pools[0].SnapshotsInUse != quiescent {
		t.Errorf("Info says %+v, %v", info.Pools, errInfo)
	}
	return r, []error{err, err2}
}

func TestWritersAreHeldBackWhileACopyIsMade(t *testing.T) {
	r, errs := copies(t, true)
	if err := errors.Join(errs...); err != nil || r.iscsi.quieted != 2 {
		t.Errorf("%v; held back %d times, want 2", err, r.iscsi.quieted)
	}
}

func TestWhereWritersCannotBeHeldBackACopyIsRefused(t *testing.T) {
	_, errs := copies(t, false)
	for _, err := range errs {
		var use *backend.InUse
		if !errors.As(err, &use) || use.Node != "n" {
			t.Errorf("got %v, want InUse by n", err)
		}
	}
}

func TestAtomicCopiesHoldNobodyBack(t *testing.T) {
	r := newRig(t, true)
	v := r.create("v")
	r.publish(to(v.ID, "n"))
	if _, err := r.b.CreateSnapshot(t.Context(), backend.CreateSnapshot{Name: "s", Of: v.ID}); err != nil || r.iscsi.quieted != 0 {
		t.Errorf("%v, held back %d times", err, r.iscsi.quieted)
	}
}

func TestContentSaysWhereAFileSystemMayBeMade(t *testing.T) {
	r := newRig(t, true)
	v := r.create("v")
	for _, want := range []backend.Content{backend.ContentBlank, backend.ContentUnknown} {
		if c := r.publish(to(v.ID, "n")); c.Content != want {
			t.Errorf("content %s, want %s", c.Content, want)
		}
	}
	c, err := r.b.CreateVolume(t.Context(), backend.CreateVolume{Name: "c", Pool: pool0, Source: backend.Source{Volume: v.ID}})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.publish(to(c.ID, "n")); got.Content != backend.ContentCopy {
		t.Errorf("a copy is called %s", got.Content)
	}
}

func TestAnExpansionThatIsRepeatedTellsInitiatorsAgain(t *testing.T) {
	r := newRig(t, true)
	v := r.create("v")
	r.publish(to(v.ID, "n"))
	if _, err := r.store.Expand(t.Context(), v.ID.Object, 8*mib); err != nil { // a call that was killed here
		t.Fatal(err)
	}
	if w, err := r.b.ExpandVolume(t.Context(), v.ID, backend.Size{Required: 8 * mib}); err != nil || w.Size != 8*mib || r.iscsi.resized[v.Identity] != 8*mib {
		t.Errorf("got %d bytes, %v; initiators were told %d", w.Size, err, r.iscsi.resized[v.Identity])
	}
}
