package driver

import (
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Cases in which other drivers failed their users, by number.

func TestD07ASizeThatIsRoundedIsFoundAgain(t *testing.T) {
	c := newController(t, "east")
	for _, required := range []int64{1<<30 + 1, 1, 20971520, 0, 3<<30/2 + 1} {
		r := asked(strings.Repeat("v", int(required%7)+1), nil)
		r.CapacityRange = &csi.CapacityRange{RequiredBytes: required}
		first, err := c.CreateVolume(t.Context(), r)
		if err != nil || first.Volume.CapacityBytes < max(required, 1) || first.Volume.CapacityBytes%(4*mib) != 0 {
			t.Fatalf("%d bytes: got %v, %v", required, first, err)
		}
		again, err := c.CreateVolume(t.Context(), r)
		if err != nil || again.Volume.VolumeId != first.Volume.VolumeId || again.Volume.CapacityBytes != first.Volume.CapacityBytes {
			t.Errorf("%d bytes again: got %v, %v; was %v", required, again, err, first)
		}
		e := &csi.ControllerExpandVolumeRequest{VolumeId: first.Volume.VolumeId, CapacityRange: &csi.CapacityRange{RequiredBytes: 2<<30 + 1}}
		for range 2 {
			if grown, err := c.ControllerExpandVolume(t.Context(), e); err != nil || grown.CapacityBytes != 2<<30+4*mib {
				t.Errorf("expanded: got %v, %v", grown, err)
			}
		}
		if again, err = c.CreateVolume(t.Context(), r); err != nil || again.Volume.VolumeId != first.Volume.VolumeId {
			t.Errorf("%d bytes after it was expanded: got %v, %v", required, again, err)
		}
	}
}

func TestD09AnotherRequestUnderTheSameNameIsRefused(t *testing.T) {
	c, ctx := newController(t, "east"), t.Context()
	v := create(t, c, "source", nil)
	var snaps []string
	for _, name := range []string{"s1", "s2"} {
		s, err := c.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: v.VolumeId})
		if err != nil {
			t.Fatal(err)
		}
		snaps = append(snaps, s.Snapshot.SnapshotId)
	}
	from := func(source *csi.VolumeContentSource) *csi.CreateVolumeRequest {
		r := asked("x", nil)
		r.VolumeContentSource = source
		return r
	}
	if _, err := c.CreateVolume(ctx, from(fromSnapshot(snaps[0]))); err != nil {
		t.Fatal(err)
	}
	for what, r := range map[string]*csi.CreateVolumeRequest{"another snapshot": from(fromSnapshot(snaps[1])), "a volume": from(fromVolume(v.VolumeId)), "nothing": from(nil)} {
		_, err := c.CreateVolume(ctx, r)
		is(t, err, codes.AlreadyExists, "from "+what)
	}
	var ids sync.Map
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if r, err := c.CreateVolume(ctx, asked("at once", nil)); err != nil {
				t.Error(err)
			} else {
				ids.Store(r.Volume.VolumeId, true)
			}
		})
	}
	wg.Wait()
	n := 0
	ids.Range(func(any, any) bool { n++; return true })
	if n != 1 || len(volumes(t, c, 0)) != 3 {
		t.Errorf("two calls made %d volumes; there are %d", n, len(volumes(t, c, 0)))
	}
}

func TestD10AnyNameIsAnotherVolume(t *testing.T) {
	c := newController(t, "east")
	long := strings.Repeat("n", 127)
	seen := map[string]string{}
	for _, name := range []string{long + "a", long + "b", "PVC_Ünïcode/../x", "Vol", "vol", "-rf", "a b", "𐍈", "..", "$(reboot)"} {
		v := create(t, c, name, nil)
		if other, twice := seen[v.VolumeId]; twice {
			t.Errorf("%q and %q are one volume", name, other)
		}
		seen[v.VolumeId] = name
		if len(v.VolumeId) > 128 || strings.ContainsAny(v.VolumeId, "/ $") {
			t.Errorf("%q became %q", name, v.VolumeId)
		}
		for tr, cfg := range map[backend.Transport]Config{backend.ISCSI: {Cluster: name}, backend.NVMe: {Cluster: name}} {
			if err := backend.CheckInitiator(tr, cfg.initiator(tr, name)); err != nil {
				t.Errorf("a node called %q: %v", name, err)
			}
		}
	}
}

func TestD11WhatIsUnknownIsGoneOrNotFoundAsCSIWants(t *testing.T) {
	c, ctx := newController(t, "east"), t.Context()
	v := create(t, c, "v", nil)
	published(t, c, publish(v, "a", mounted(rwo)))
	readonly := publish(v, "a", mounted(rwo))
	readonly.Readonly = true
	for what, w := range map[string]struct {
		call func() error
		code codes.Code
	}{
		"deleting no volume": {func() error { _, err := c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: "nope"}); return err }, codes.OK},
		"deleting no snapshot": {func() error {
			_, err := c.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: "nope"})
			return err
		}, codes.OK},
		"validating no volume": {func() error { return validate(t, c, "nope") }, codes.NotFound},
		"publishing no volume": {func() error {
			_, err := c.ControllerPublishVolume(ctx, publish(&csi.Volume{VolumeId: "nope"}, "a", mounted(rwo)))
			return err
		}, codes.NotFound},
		"published otherwise": {func() error { _, err := c.ControllerPublishVolume(ctx, readonly); return err }, codes.AlreadyExists},
		"deleting while published": {func() error {
			_, err := c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.VolumeId})
			return err
		}, codes.FailedPrecondition},
		"expanding no volume": {func() error {
			_, err := c.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: "nope"})
			return err
		}, codes.NotFound},
		"modifying no volume": {func() error {
			_, err := c.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{VolumeId: "nope"})
			return err
		}, codes.NotFound},
		"a snapshot of no volume": {func() error {
			_, err := c.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: "nope"})
			return err
		}, codes.NotFound},
		"unpublishing an unknown node": {func() error {
			_, err := c.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: v.VolumeId, NodeId: "nope"})
			return err
		}, codes.OK},
	} {
		is(t, w.call(), w.code, what)
	}
	unpublish(t, c, v, "") // from all nodes
	if all := volumes(t, c, 0); len(all) != 1 || len(all[0].Status.PublishedNodeIds) != 0 {
		t.Errorf("got %v", all)
	}
	c.HasNode = nobody
	_, err := c.ControllerPublishVolume(ctx, publish(v, "a", mounted(rwo)))
	is(t, err, codes.NotFound, "publishing to an unknown node")
}
