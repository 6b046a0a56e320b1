package contract

import (
	"errors"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

var snapshotChecks = []check{
	{"APoolWithoutSnapshotsSaysSo", 0, aPoolWithoutSnapshotsSaysSo},
	{"ASnapshotOutlivesItsVolume", 0, aSnapshotOutlivesItsVolume},
	{"ARepeatedSnapshotIsFound", 0, aRepeatedSnapshotIsFound},
	{"ACopyIsAtLeastAsLongAsItsSource", 0, aCopyIsAtLeastAsLongAsItsSource},
	{"SourcesMayGo", 0, sourcesMayGo},
	{"VolumesAndSnapshotsAreNotEachOther", 0, volumesAndSnapshotsAreNotEachOther},
	{"AVolumeInUseIsCopiedWhereThePoolCan", eachTransport, aVolumeInUseIsCopiedWhereThePoolCan},
}

func aPoolWithoutSnapshotsSaysSo(r *trial) {
	if r.pool.Snapshots {
		return
	}
	v := r.create(r.asks("vol", 1))
	_, err := r.b.CreateSnapshot(r.ctx, backend.CreateSnapshot{Name: "snap", Of: v.ID})
	r.want(err, "a snapshot", backend.ErrUnsupported)
	clone := r.asks("clone", 1)
	clone.Source.Volume = v.ID
	_, err = r.b.CreateVolume(r.ctx, clone)
	r.want(err, "a clone", backend.ErrUnsupported)
	r.isEmptyBut("vol")
}

func aSnapshotOutlivesItsVolume(r *trial) {
	if !r.pool.Snapshots {
		return
	}
	v := r.create(r.asks("vol", 2))
	s := r.snapshot("snap", v.ID)
	want := backend.ID{Pool: r.pool.Name, Object: backend.ObjectName(backend.SnapshotObject, r.s.Tenant, "snap")}
	if s.ID != want || s.Name != "snap" || s.Of != v.ID || s.Size != r.size(2) || s.Created.IsZero() {
		r.Errorf("got %+v", s)
	}
	_, err := r.b.ExpandVolume(r.ctx, v.ID, backend.Size{Required: r.size(3)})
	r.ok(err, "expanding the volume")
	r.ok(r.b.DeleteVolume(r.ctx, v.ID), "deleting the volume")
	found, err := r.b.Snapshot(r.ctx, s.ID)
	r.ok(err, "finding the snapshot")
	r.sameSnapshot(found, s, "after its volume is gone")
	r.sameSnapshot(r.snapshot("snap", v.ID), s, "created again after its volume is gone")
	ask := r.asks("copy", 2)
	ask.Source.Snapshot = s.ID
	if c := r.create(ask); c.Size != r.size(2) {
		r.Errorf("a copy of the snapshot: got %s", volumeText(c))
	}
	for range 2 {
		r.ok(r.b.DeleteSnapshot(r.ctx, s.ID), "deleting the snapshot")
		_, err = r.b.Snapshot(r.ctx, s.ID)
		r.want(err, "finding it", backend.ErrNotFound)
	}
}

func aRepeatedSnapshotIsFound(r *trial) {
	if !r.pool.Snapshots {
		return
	}
	v, other := r.create(r.asks("vol", 1)), r.create(r.asks("other", 1))
	s := r.snapshot("snap", v.ID)
	r.sameSnapshot(r.snapshot("snap", v.ID), s, "created again")
	_, err := r.b.CreateSnapshot(r.ctx, backend.CreateSnapshot{Name: "snap", Of: other.ID})
	r.want(err, "of another volume", backend.ErrConflict)
	if all := r.snapshots(); len(all) != 1 {
		r.Errorf("got %v", all)
	}
}

func aCopyIsAtLeastAsLongAsItsSource(r *trial) {
	if !r.pool.Snapshots {
		return
	}
	v := r.create(r.asks("vol", 2))
	for what, from := range map[string]backend.Source{"volume": {Volume: v.ID}, "snapshot": {Snapshot: r.snapshot("snap", v.ID).ID}} {
		for n, want := range []int64{2, 0, 2, 3} {
			ask := r.asks(what+string(rune('0'+n)), int64(n))
			ask.Source = from
			got, err := r.b.CreateVolume(r.ctx, ask)
			if want == 0 {
				r.want(err, "smaller than its source, a "+what, backend.ErrRange)
				continue
			}
			r.ok(err, "a copy of a "+what)
			if got.Size != r.size(want) || got.Source != from || got.Content != backend.ContentCopy || got.Identity == v.Identity {
				r.Errorf("a copy of a %s, %d bytes asked for: got %s, content %s", what, ask.Size.Required, volumeText(got), got.Content)
			}
			r.sameVolume(r.create(ask), got, "copied again")
		}
		small := r.asks("limited "+what, 0)
		small.Source, small.Size.Limit = from, r.size(1)
		_, err := r.b.CreateVolume(r.ctx, small)
		r.want(err, "limited to less than its source, a "+what, backend.ErrRange)
	}
}

func sourcesMayGo(r *trial) {
	if !r.pool.Snapshots {
		return
	}
	v := r.create(r.asks("vol", 1))
	s := r.snapshot("snap", v.ID)
	ofVolume, ofSnapshot := r.asks("of volume", 1), r.asks("of snapshot", 1)
	ofVolume.Source.Volume, ofSnapshot.Source.Snapshot = v.ID, s.ID
	a, b := r.create(ofVolume), r.create(ofSnapshot)
	r.ok(r.b.DeleteVolume(r.ctx, v.ID), "deleting the volume")
	r.ok(r.b.DeleteSnapshot(r.ctx, s.ID), "deleting the snapshot")
	r.sameVolume(r.create(ofVolume), a, "created again without its source")
	r.sameVolume(r.create(ofSnapshot), b, "created again without its source")
	ofVolume.Name, ofSnapshot.Name = "new1", "new2"
	for _, ask := range []backend.CreateVolume{ofVolume, ofSnapshot} {
		_, err := r.b.CreateVolume(r.ctx, ask)
		r.want(err, "from a source that is gone", backend.ErrNotFound)
	}
	r.isEmptyBut("of volume", "of snapshot")
	r.clear()
	r.nothingIsLeft()
}

func volumesAndSnapshotsAreNotEachOther(r *trial) {
	if !r.pool.Snapshots {
		return
	}
	v := r.create(r.asks("same name", 1))
	s := r.snapshot("same name", v.ID)
	for what, call := range map[string]func() error{
		"Volume":       func() error { _, err := r.b.Volume(r.ctx, s.ID); return err },
		"ExpandVolume": func() error { _, err := r.b.ExpandVolume(r.ctx, s.ID, backend.Size{Required: r.size(2)}); return err },
		"TuneVolume":   func() error { _, err := r.b.TuneVolume(r.ctx, s.ID, tunables(1, 1)); return err },
		"Publish":      func() error { _, err := r.b.Publish(r.ctx, r.to(s.ID, "node")); return err },
		"Snapshot":     func() error { _, err := r.b.Snapshot(r.ctx, v.ID); return err },
		"CreateSnapshot": func() error {
			_, err := r.b.CreateSnapshot(r.ctx, backend.CreateSnapshot{Name: "of it", Of: s.ID})
			return err
		},
		"CreateVolume": func() error { return r.crossed(v.ID, s.ID) },
	} {
		r.want(call(), what, backend.ErrNotFound, backend.ErrInvalid)
	}
	r.harmless(r.b.DeleteVolume(r.ctx, s.ID), "DeleteVolume of a snapshot")
	r.harmless(r.b.DeleteSnapshot(r.ctx, v.ID), "DeleteSnapshot of a volume")
	if n := len(r.snapshots()); n != 1 {
		r.Errorf("%d snapshots are there, want 1", n)
	}
	r.isEmptyBut("same name")
}

// crossed asks for copies of things that are not what they are called.
func (r *trial) crossed(volume, snapshot backend.ID) error {
	ask := r.asks("copy", 1)
	ask.Source = backend.Source{Volume: snapshot}
	_, err := r.b.CreateVolume(r.ctx, ask)
	ask.Source = backend.Source{Snapshot: volume}
	if err != nil {
		_, err = r.b.CreateVolume(r.ctx, ask)
	}
	return err
}

// harmless: such a call may succeed, as there is nothing to do, or be refused.
func (r *trial) harmless(err error, what string) {
	r.Helper()
	if err != nil && !errors.Is(err, backend.ErrInvalid) && !errors.Is(err, backend.ErrNotFound) {
		r.Errorf("%s: %v", what, err)
	}
}

func aVolumeInUseIsCopiedWhereThePoolCan(r *trial) {
	if !r.pool.Snapshots {
		return
	}
	v := r.create(r.asks("vol", 1))
	r.publish(r.to(v.ID, "node"))
	ask := r.asks("clone", 1)
	ask.Source.Volume = v.ID
	_, errSnapshot := r.b.CreateSnapshot(r.ctx, backend.CreateSnapshot{Name: "snap", Of: v.ID})
	_, errClone := r.b.CreateVolume(r.ctx, ask)
	if r.pool.SnapshotsInUse {
		r.ok(errors.Join(errSnapshot, errClone), "copying a published volume")
		return
	}
	r.want(errSnapshot, "a snapshot of a published volume", backend.ErrInUse)
	r.want(errClone, "a clone of a published volume", backend.ErrInUse)
	r.unpublish(v.ID, "node")
	r.snapshot("snap", v.ID)
	r.create(ask)
}
