package driver

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// volumes are all, in pages of most.
func volumes(t *testing.T, c *Controller, most int32) []*csi.ListVolumesResponse_Entry {
	t.Helper()
	var all []*csi.ListVolumesResponse_Entry
	for token := ""; ; {
		r, err := c.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: most, StartingToken: token})
		if err != nil {
			t.Fatal(err)
		}
		if most > 0 && len(r.Entries) > int(most) {
			t.Errorf("a page of %d has %d", most, len(r.Entries))
		}
		all = append(all, r.Entries...)
		if token = r.NextToken; token == "" {
			return all
		}
	}
}

func TestAListGoesThroughAllBackends(t *testing.T) {
	c := newController(t, "east", "empty", "west")
	var want []string
	for i := range 5 {
		for _, b := range []string{"east", "west"} {
			want = append(want, create(t, c, fmt.Sprint("v", i), map[string]string{"backend": b}).VolumeId)
		}
	}
	slices.Sort(want)
	for most := range int32(12) {
		var got []string
		for _, e := range volumes(t, c, most) {
			got = append(got, e.Volume.VolumeId)
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d: got %v, want %v", most, got, want)
		}
	}
}

func TestAListHasWhoHasWhat(t *testing.T) {
	c := newController(t, "east")
	v := create(t, c, "v", nil)
	for _, n := range []string{"a", "b"} {
		published(t, c, publish(v, n, raw(rwx)))
	}
	all := volumes(t, c, 0)
	if len(all) != 1 || !slices.Equal(all[0].Status.PublishedNodeIds, []string{"a", "b"}) {
		t.Errorf("got %v", all)
	}
	one, err := c.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: v.VolumeId})
	if err != nil || one.Volume.CapacityBytes != v.CapacityBytes || !slices.Equal(one.Status.PublishedNodeIds, []string{"a", "b"}) {
		t.Errorf("got %v, %v", one, err)
	}
}

// TestABackendThatIsDownMakesNoPartialList, and harms no other.
func TestABackendThatIsDownMakesNoPartialList(t *testing.T) {
	c := newController(t, "east", "west")
	create(t, c, "v", map[string]string{"backend": "east"})
	of(t, c, "west").down = true
	_, err := c.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	if m := is(t, err, codes.Unavailable, "a list"); !strings.Contains(m, "west") {
		t.Errorf("%q does not name the backend", m)
	}
	_, err = c.GetCapacity(t.Context(), &csi.GetCapacityRequest{})
	is(t, err, codes.Unavailable, "the capacity of all")
	_, err = c.CreateVolume(t.Context(), asked("w", map[string]string{"backend": "west"}))
	is(t, err, codes.Unavailable, "a volume there")
	create(t, c, "w", map[string]string{"backend": "east"})
	if _, err := c.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: map[string]string{"backend": "east"}}); err != nil {
		t.Errorf("the capacity of another: %v", err)
	}
}

func TestATokenOfNoListIsRefused(t *testing.T) {
	c := newController(t, "east")
	for _, token := range []string{"x", "east", "north:", "east:garbage"} {
		_, err := c.ListVolumes(t.Context(), &csi.ListVolumesRequest{StartingToken: token})
		is(t, err, codes.Aborted, token)
		_, err = c.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{StartingToken: token})
		is(t, err, codes.Aborted, token)
	}
	_, err := c.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: -1})
	is(t, err, codes.InvalidArgument, "-1 entries")
}

func TestSnapshotsAreListedByVolumeAndByID(t *testing.T) {
	c := newController(t, "east", "west")
	var vols, snaps []string
	for _, b := range []string{"east", "west"} {
		v := create(t, c, "v", map[string]string{"backend": b})
		vols = append(vols, v.VolumeId)
		for i := range 3 {
			s, err := c.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: fmt.Sprint("s", i), SourceVolumeId: v.VolumeId})
			if err != nil {
				t.Fatal(err)
			}
			snaps = append(snaps, s.Snapshot.SnapshotId)
		}
	}
	for what, w := range map[string]struct {
		r    *csi.ListSnapshotsRequest
		want int
	}{
		"all":                   {&csi.ListSnapshotsRequest{}, 6},
		"of a volume":           {&csi.ListSnapshotsRequest{SourceVolumeId: vols[1]}, 3},
		"one":                   {&csi.ListSnapshotsRequest{SnapshotId: snaps[4]}, 1},
		"one of its volume":     {&csi.ListSnapshotsRequest{SnapshotId: snaps[4], SourceVolumeId: vols[1]}, 1},
		"one of another volume": {&csi.ListSnapshotsRequest{SnapshotId: snaps[4], SourceVolumeId: vols[0]}, 0},
		"none":                  {&csi.ListSnapshotsRequest{SnapshotId: "x"}, 0},
		"of no volume":          {&csi.ListSnapshotsRequest{SourceVolumeId: "x"}, 0},
	} {
		got, err := c.ListSnapshots(t.Context(), w.r)
		if err != nil || len(got.Entries) != w.want {
			t.Errorf("%s: got %d, %v; want %d", what, len(got.GetEntries()), err, w.want)
		}
	}
	_, err := c.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "x", SourceVolumeId: vols[0], Parameters: map[string]string{"color": "red"}})
	if m := is(t, err, codes.InvalidArgument, "an unknown parameter"); !strings.Contains(m, "color") {
		t.Errorf("%q does not name it", m)
	}
	_, err = c.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "s0", SourceVolumeId: create(t, c, "other", map[string]string{"backend": "east"}).VolumeId})
	is(t, err, codes.AlreadyExists, "of another volume")
}
