// Package kubelet plays the kubelet for tests: it makes CSI's node calls to a node
// plugin's socket, and repeats those that fail.
package kubelet

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	// patience bounds what must come in the end, on however slow a machine.
	patience = 3 * time.Minute
	// again is how long after a failure a call is repeated.
	again = 100 * time.Millisecond
	// Raw is the kind of a volume without file system.
	Raw = "raw"
)

// Volume is one volume on one node: ext4, xfs, or Raw.
type Volume struct {
	testing.TB
	ID   string
	Kind string
	// PublishContext and Context are what the controller said when it published and
	// made it.
	PublishContext, Context map[string]string

	dir string
	csi csi.NodeClient
}

// On is a volume on the node whose plugin c calls; its mounts are in a directory.
func On(t testing.TB, c csi.NodeClient, dir, id, kind string) *Volume {
	return &Volume{TB: t, ID: id, Kind: kind, dir: dir, csi: c}
}

// Dial connects to a plugin's endpoint; calls wait until it is there.
func Dial(t testing.TB, endpoint string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Path is where the volume is published.
func (v *Volume) Path() string { return filepath.Join(v.dir, "t") }

func (v *Volume) staging() string { return filepath.Join(v.dir, "g") }

// File is what a program can write to: the device, or a file.
func (v *Volume) File() string {
	if v.Kind == Raw {
		return v.Path()
	}
	return filepath.Join(v.Path(), "data")
}

// Capability asks for a volume of a kind, for one node.
func Capability(kind string) *csi.VolumeCapability {
	c := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	if kind == Raw {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	} else {
		c.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: kind}}
	}
	return c
}

// Done makes a call until it succeeds, as kubelet and sidecars do.
func Done(t testing.TB, what string, call func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	pause := time.NewTicker(again)
	defer pause.Stop()
	for {
		err := call(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-pause.C:
		}
	}
}

func (v *Volume) done(what string, call func(ctx context.Context) error) {
	v.Helper()
	Done(v.TB, what+" of "+v.ID, call)
}

// Up stages and publishes the volume.
func (v *Volume) Up() {
	v.Helper()
	v.Stage()
	v.Publish()
}

// Stage and Publish are the two halves of Up.
func (v *Volume) Stage() {
	v.Helper()
	v.done("stage", func(ctx context.Context) error {
		_, err := v.csi.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: v.ID, StagingTargetPath: v.staging(), VolumeCapability: Capability(v.Kind),
			PublishContext: v.PublishContext, VolumeContext: v.Context})
		return err
	})
}

// Publish makes a staged volume appear at Path.
func (v *Volume) Publish() {
	v.Helper()
	v.done("publish", func(ctx context.Context) error {
		_, err := v.csi.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: v.ID, StagingTargetPath: v.staging(), TargetPath: v.Path(),
			VolumeCapability: Capability(v.Kind), PublishContext: v.PublishContext, VolumeContext: v.Context})
		return err
	})
}

// Down unpublishes and unstages it.
func (v *Volume) Down() {
	v.Helper()
	v.Unpublish()
	v.Unstage()
}

// Unpublish and Unstage are the two halves of Down.
func (v *Volume) Unpublish() {
	v.Helper()
	v.done("unpublish", func(ctx context.Context) error {
		_, err := v.csi.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: v.ID, TargetPath: v.Path()})
		return err
	})
}

// Unstage takes the volume off the node.
func (v *Volume) Unstage() {
	v.Helper()
	v.done("unstage", v.unstage)
}

// TryUnstage is one call of Unstage.
func (v *Volume) TryUnstage() error { return v.unstage(v.TB.Context()) }

func (v *Volume) unstage(ctx context.Context) error {
	_, err := v.csi.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: v.ID, StagingTargetPath: v.staging()})
	return err
}

// Expand makes the node see that the volume has a new size.
func (v *Volume) Expand(size int64) {
	v.Helper()
	v.done("expand", func(ctx context.Context) error {
		r, err := v.csi.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{VolumeId: v.ID, VolumePath: v.Path(), CapacityRange: &csi.CapacityRange{RequiredBytes: size}})
		if err == nil && r.CapacityBytes != size {
			err = fmt.Errorf("%d bytes, want %d", r.CapacityBytes, size)
		}
		return err
	})
}

// Total is the size that the node tells of the volume, bytes: of a file system a
// little less than of its device.
func (v *Volume) Total() (total int64) {
	v.Helper()
	v.done("stats", func(ctx context.Context) error {
		r, err := v.csi.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: v.ID, VolumePath: v.Path()})
		for _, u := range r.GetUsage() {
			if u.Unit == csi.VolumeUsage_BYTES {
				total = u.Total
			}
		}
		return err
	})
	return total
}
