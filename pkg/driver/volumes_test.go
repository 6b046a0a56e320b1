package driver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

func TestAnUnknownParameterIsRefusedByName(t *testing.T) {
	c := newController(t, "east")
	for _, params := range []map[string]string{{"bakend": "east"}, {"mergedeadline": "auto"}, {"backend": "east", "thin": "yes"}} {
		_, err := c.CreateVolume(t.Context(), asked("v", params))
		message := is(t, err, codes.InvalidArgument, fmt.Sprint(params))
		for k := range params {
			if k != "backend" && !strings.Contains(message, `"`+k+`"`) {
				t.Errorf("%q does not name %q", message, k)
			}
		}
	}
	create(t, c, "v", map[string]string{"csi.storage.k8s.io/pvc/name": "a", "csi.storage.k8s.io/fstype": "xfs"})
}

func TestARequestThatCannotBeIsInvalid(t *testing.T) {
	c := newController(t, "east", "west")
	with := func(change func(r *csi.CreateVolumeRequest)) *csi.CreateVolumeRequest {
		r := asked("v", map[string]string{"backend": "east"})
		change(r)
		return r
	}
	for what, r := range map[string]*csi.CreateVolumeRequest{
		"no backend of two":     asked("v", nil),
		"an unknown backend":    asked("v", map[string]string{"backend": "north"}),
		"an unknown pool":       asked("v", map[string]string{"backend": "east", "pool": "slow"}),
		"no name":               asked("", map[string]string{"backend": "east"}),
		"too long a name":       asked(strings.Repeat("n", 129), map[string]string{"backend": "east"}),
		"RWX of a file system":  with(func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0] = mounted(rwx) }),
		"a writer and readers":  with(func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0] = mounted(mw1) }),
		"no access mode":        with(func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0] = mounted(0) }),
		"no access type":        with(func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].AccessType = nil }),
		"no capability":         with(func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = nil }),
		"another file system":   with(func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].GetMount().FsType = "ntfs" }),
		"a negative size":       with(func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = -1 }),
		"a limit below":         with(func(r *csi.CreateVolumeRequest) { r.CapacityRange.LimitBytes = mib }),
		"an unknown tunable":    with(func(r *csi.CreateVolumeRequest) { r.MutableParameters = map[string]string{"color": "red"} }),
		"a pool to be modified": with(func(r *csi.CreateVolumeRequest) { r.MutableParameters = map[string]string{"pool": "fast"} }),
		"a tunable out of its range": with(func(r *csi.CreateVolumeRequest) {
			r.MutableParameters = map[string]string{"mergeDeadline": "1h"}
		}),
		"lanes without an end": with(func(r *csi.CreateVolumeRequest) { r.Parameters["lanes"] = "2" }),
	} {
		_, err := c.CreateVolume(t.Context(), r)
		is(t, err, codes.InvalidArgument, what)
	}
	if r, err := c.ListVolumes(t.Context(), &csi.ListVolumesRequest{}); err != nil || len(r.Entries) != 0 {
		t.Errorf("left: %v, %v", r, err)
	}
}

func TestEveryModeOfARawVolumeIsHad(t *testing.T) {
	c := newController(t, "east")
	for mode := range modes {
		r := asked(mode.String(), nil)
		r.VolumeCapabilities = []*csi.VolumeCapability{raw(mode)}
		if _, err := c.CreateVolume(t.Context(), r); err != nil {
			t.Errorf("%v: %v", mode, err)
		}
	}
}

func TestAVolumeIsNamedByWhereItIs(t *testing.T) {
	c := newController(t, "east", "west")
	v := create(t, c, "v", map[string]string{"backend": "west", "transport": "nvme-tcp", "mkfsOptions": "-m 0", "minPaths": "2"})
	id, err := attrs.ParseID(v.VolumeId)
	if err != nil || id.Backend != "west" || id.Object.Pool != "fast" || v.CapacityBytes != 12*mib {
		t.Errorf("got %v, %v", v, err)
	}
	if len(v.VolumeContext) != 2 || v.VolumeContext["transport"] != "nvme-tcp" || v.VolumeContext["mkfsOptions"] != "-m 0" {
		t.Errorf("volume_context has tunables, or lacks something: %v", v.VolumeContext)
	}
	got, err := of(t, c, "west").Volume(t.Context(), id.Object)
	if err != nil || got.Tunables["minPaths"] != "2" || got.Generation != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestARepeatedCreationIsComparedWithWhatThereIs(t *testing.T) {
	c := newController(t, "east")
	first := create(t, c, "v", nil)
	if again := create(t, c, "v", nil); again.VolumeId != first.VolumeId {
		t.Errorf("got %s after %s", again.VolumeId, first.VolumeId)
	}
	larger := asked("v", nil)
	larger.CapacityRange.RequiredBytes = 20 * mib
	_, err := c.CreateVolume(t.Context(), larger)
	is(t, err, codes.AlreadyExists, "larger")
}

func TestSizesKeepToTheirRange(t *testing.T) {
	c := newController(t, "east")
	for what, w := range map[string]struct {
		asked *csi.CapacityRange
		want  int64
		code  codes.Code
	}{
		"nothing":         {nil, defaultSize, codes.OK},
		"only a limit":    {&csi.CapacityRange{LimitBytes: 9 * mib}, 4 * mib, codes.OK},
		"rounded up":      {&csi.CapacityRange{RequiredBytes: 5 * mib, LimitBytes: 8 * mib}, 8 * mib, codes.OK},
		"over the limit":  {&csi.CapacityRange{RequiredBytes: 5 * mib, LimitBytes: 7 * mib}, 0, codes.OutOfRange},
		"over the pool's": {&csi.CapacityRange{RequiredBytes: 1<<40 + 1}, 0, codes.OutOfRange},
	} {
		r := asked(what, nil)
		r.CapacityRange = w.asked
		got, err := c.CreateVolume(t.Context(), r)
		is(t, err, w.code, what)
		if got.GetVolume().GetCapacityBytes() != w.want {
			t.Errorf("%s: got %d bytes, want %d", what, got.GetVolume().GetCapacityBytes(), w.want)
		}
	}
}

func fromVolume(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id}}}
}

func fromSnapshot(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id}}}
}

func TestCopiesAreMadeAtTheirSourcesBackend(t *testing.T) {
	c := newController(t, "east", "west")
	east := map[string]string{"backend": "east"}
	v := create(t, c, "v", east)
	s, err := c.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: v.VolumeId})
	if err != nil {
		t.Fatal(err)
	}
	gone := strings.TrimSuffix(v.VolumeId, v.VolumeId[len(v.VolumeId)-4:]) + "aaaa"
	for what, w := range map[string]struct {
		from   *csi.VolumeContentSource
		params map[string]string
		size   int64
		code   codes.Code
	}{
		"a clone":               {fromVolume(v.VolumeId), east, 0, codes.OK},
		"a copy":                {fromSnapshot(s.Snapshot.SnapshotId), east, 0, codes.OK},
		"a larger copy":         {fromSnapshot(s.Snapshot.SnapshotId), east, 40 * mib, codes.OK},
		"a smaller copy":        {fromSnapshot(s.Snapshot.SnapshotId), east, 4 * mib, codes.OutOfRange},
		"at another backend":    {fromVolume(v.VolumeId), map[string]string{"backend": "west"}, 0, codes.InvalidArgument},
		"of what is gone":       {fromVolume(gone), east, 0, codes.NotFound},
		"of what cannot be":     {fromVolume("x"), east, 0, codes.NotFound},
		"of nothing":            {&csi.VolumeContentSource{}, east, 0, codes.InvalidArgument},
		"of a volume so called": {fromSnapshot(v.VolumeId), east, 0, codes.NotFound},
	} {
		r := asked(what, w.params)
		r.VolumeContentSource, r.CapacityRange.RequiredBytes = w.from, w.size
		got, err := c.CreateVolume(t.Context(), r)
		is(t, err, w.code, what)
		if err == nil && (got.Volume.ContentSource.String() != w.from.String() || got.Volume.CapacityBytes < 12*mib) {
			t.Errorf("%s: got %v", what, got.Volume)
		}
	}
}

func TestAVolumeGoesWhereItsBackendIsReached(t *testing.T) {
	c := newController(t)
	near := agentAt("near")
	near.Topology = map[string]string{"rack": "1"}
	if err := c.Backends.Change(Config{Cluster: cluster, Backends: []BackendConfig{near}}); err != nil {
		t.Fatal(err)
	}
	at := func(rack string) *csi.CreateVolumeRequest {
		r := asked("v"+rack, nil)
		r.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{"rack": rack, "host": "a"}}}}
		return r
	}
	got, err := c.CreateVolume(t.Context(), at("1"))
	if err != nil || len(got.Volume.AccessibleTopology) != 1 || got.Volume.AccessibleTopology[0].Segments["rack"] != "1" {
		t.Errorf("got %v, %v", got, err)
	}
	_, err = c.CreateVolume(t.Context(), at("2"))
	is(t, err, codes.ResourceExhausted, "where it is not reached")
	for rack, there := range map[string]bool{"1": true, "2": false} {
		room, err := c.GetCapacity(t.Context(), &csi.GetCapacityRequest{AccessibleTopology: &csi.Topology{Segments: map[string]string{"rack": rack}}})
		if err != nil || (room.AvailableCapacity > 0) != there {
			t.Errorf("rack %s: got %v, %v", rack, room, err)
		}
	}
	caps, err := (&Identity{Backends: c.Backends}).GetPluginCapabilities(t.Context(), nil)
	if err != nil || !strings.Contains(caps.String(), "VOLUME_ACCESSIBILITY_CONSTRAINTS") {
		t.Errorf("got %v, %v", caps, err)
	}
}

func TestModifyChangesWhatIsNamedAndCountsUp(t *testing.T) {
	c := newController(t, "east")
	v := create(t, c, "v", map[string]string{"minPaths": "2"})
	id, _ := attrs.ParseID(v.VolumeId)
	modify := func(params map[string]string) error {
		_, err := c.ControllerModifyVolume(t.Context(), &csi.ControllerModifyVolumeRequest{VolumeId: v.VolumeId, MutableParameters: params})
		return err
	}
	for range 2 {
		if err := modify(map[string]string{"mergeDeadline": "auto"}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := of(t, c, "east").Volume(t.Context(), id.Object)
	if err != nil || got.Generation != 2 || got.Tunables["minPaths"] != "2" || got.Tunables["mergeDeadline"] != "auto" {
		t.Errorf("got %+v, %v", got, err)
	}
	is(t, modify(map[string]string{"color": "red"}), codes.InvalidArgument, "unknown")
	if err := modify(map[string]string{"queueDepth": "64"}); err != nil {
		t.Errorf("while nobody has it: %v", err)
	}
	if _, err := c.ControllerPublishVolume(t.Context(), publish(v, "node-1", mounted(rwo))); err != nil {
		t.Fatal(err)
	}
	is(t, modify(map[string]string{"queueDepth": "32"}), codes.InvalidArgument, "what cannot be changed under a node")
	if err := modify(map[string]string{"polling": "adaptive"}); err != nil {
		t.Errorf("live: %v", err)
	}
}

func TestExpansionAndDeletionAreOfWhatIsThere(t *testing.T) {
	c := newController(t, "east")
	v := create(t, c, "v", nil)
	expand := func(id string, size int64) (*csi.ControllerExpandVolumeResponse, error) {
		return c.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: size}})
	}
	for range 2 {
		if r, err := expand(v.VolumeId, 17*mib); err != nil || r.CapacityBytes != 20*mib || !r.NodeExpansionRequired {
			t.Errorf("got %v, %v", r, err)
		}
	}
	if _, err := c.ControllerPublishVolume(t.Context(), publish(v, "node-1", mounted(rwo))); err != nil {
		t.Fatal(err)
	}
	_, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.VolumeId})
	if m := is(t, err, codes.FailedPrecondition, "deleted while published"); !strings.Contains(m, "node-1") {
		t.Errorf("%q does not name the node", m)
	}
	if _, err := c.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: v.VolumeId, NodeId: "node-1"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.VolumeId}); err != nil {
			t.Error(err)
		}
	}
	_, err = expand(v.VolumeId, mib)
	is(t, err, codes.NotFound, "expanded when it is gone")
}

// TestWhatIsAtABackendThatIsNotConfiguredIsNotCalledGone: its configuration may
// have been lost, and the volume not.
func TestWhatIsAtABackendThatIsNotConfiguredIsNotCalledGone(t *testing.T) {
	c := newController(t, "east")
	id := attrs.ID{Backend: "north", Object: backend.ID{Pool: "fast", Object: "v-1"}}.String()
	_, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: id})
	is(t, err, codes.Unavailable, "deleting")
	_, err = c.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: "n"})
	is(t, err, codes.Unavailable, "unpublishing")
	_, err = c.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{SourceVolumeId: id})
	is(t, err, codes.Unavailable, "listing its snapshots")
}
