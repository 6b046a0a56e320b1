package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// withStatic is a controller that is told of n static volumes.
func withStatic(t *testing.T, n int, backends ...string) *Controller {
	t.Helper()
	c := newController(t, backends...)
	c.Static = func(context.Context) (all []StaticVolume, _ error) {
		for i := range n {
			all = append(all, StaticVolume{Handle: fmt.Sprintf("array:lun-%d", i), Size: mib, Nodes: []string{"a", "b"}})
		}
		return all, nil
	}
	return c
}

func TestAttachedStaticVolumesAreAtTheEndOfTheList(t *testing.T) {
	c := withStatic(t, 5, "east", "west")
	var want []string
	for _, b := range []string{"east", "west"} {
		want = append(want, create(t, c, "v", map[string]string{"backend": b}).VolumeId)
	}
	for i := range 5 {
		want = append(want, fmt.Sprint("array:lun-", i))
	}
	for most := range int32(9) {
		var got []string
		for _, e := range volumes(t, c, most) {
			got = append(got, e.Volume.VolumeId)
			if len(got) > 2 && (!slices.Equal(e.Status.PublishedNodeIds, []string{"a", "b"}) || e.Volume.CapacityBytes != mib) {
				t.Errorf("got %v", e)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d: got %v, want %v", most, got, want)
		}
	}
}

func TestAStaticVolumeIsFoundWhileItIsAttached(t *testing.T) {
	c := withStatic(t, 3)
	got, err := c.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: "array:lun-1"})
	if err != nil || !slices.Equal(got.Status.PublishedNodeIds, []string{"a", "b"}) {
		t.Errorf("got %v, %v", got, err)
	}
	_, err = c.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: "array:lun-9"})
	is(t, err, codes.NotFound, "one that nobody has")
}

// TestAClusterThatIsNotKnownMakesNoPartialList: what is missing would be taken for
// detached.
func TestAClusterThatIsNotKnownMakesNoPartialList(t *testing.T) {
	c := newController(t, "east")
	create(t, c, "v", nil)
	away := errors.New("not known yet")
	c.Static = func(context.Context) ([]StaticVolume, error) { return nil, away }
	c.HasNode = func(context.Context, string) (bool, error) { return false, away }
	_, err := c.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	is(t, err, codes.Unavailable, "the list")
	_, err = c.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: "array:lun-1"})
	is(t, err, codes.Unavailable, "one")
	_, err = c.ControllerPublishVolume(t.Context(), publish(create(t, c, "v", nil), "n", mounted(rwo)))
	is(t, err, codes.Unavailable, "a node")
}
