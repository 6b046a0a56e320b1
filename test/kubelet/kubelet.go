// Package kubelet plays the kubelet for tests: it makes CSI's node calls to a node
// plugin's socket, and repeats those that fail, for one volume of a target of ours.
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

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

const (
	// patience bounds what must come in the end, on however slow a machine.
	patience = 3 * time.Minute
	// again is how long after a failure a call is repeated.
	again = 100 * time.Millisecond
	// initial is the volume's size, bytes: what XFS takes at least.
	initial = 400 << 20
	// Raw is the kind of a volume without file system.
	Raw = "raw"
)

// Volume is one volume on one node: ext4, xfs, or Raw.
type Volume struct {
	testing.TB
	Target  *target.Server
	Portals []*target.Portal
	Kind    string
	dir     string
	csi     csi.NodeClient
}

// Size is what the volume has when it is new.
const Size int64 = initial

// New makes a volume with two portals, for a node plugin whose socket is in a
// directory.
func New(t testing.TB, dir, kind string) *Volume {
	t.Helper()
	v := &Volume{TB: t, Kind: kind, dir: dir}
	var err error
	v.Target, err = target.New(target.Config{Name: "iqn.2026-01.test:vol", LUNs: []target.LUN{{Number: 1, Store: target.NewRAM(initial)}}})
	v.must(err)
	t.Cleanup(func() { _ = v.Target.Close() })
	for range 2 {
		p, err := v.Target.ListenPortal("127.0.0.1:0", target.PortalConfig{TPGT: 1})
		v.must(err)
		v.Portals = append(v.Portals, p)
	}
	conn, err := grpc.NewClient(v.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	v.must(err)
	t.Cleanup(func() { _ = conn.Close() })
	v.csi = csi.NewNodeClient(conn)
	return v
}

func (v *Volume) must(err error) {
	v.Helper()
	if err != nil {
		v.Fatal(err)
	}
}

// Endpoint is where the node plugin is to serve.
func (v *Volume) Endpoint() string { return "unix://" + v.dir + "/csi" }

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

func (v *Volume) capability() *csi.VolumeCapability {
	c := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	if v.Kind == Raw {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	} else {
		c.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: v.Kind}}
	}
	return c
}

// retry makes a call until it succeeds.
func (v *Volume) retry(what string, call func(ctx context.Context) error) {
	v.Helper()
	ctx, cancel := context.WithTimeout(v.Context(), patience)
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
			v.Fatalf("%s: %v", what, err)
		case <-pause.C:
		}
	}
}

// context is what a controller's publication would say.
func (v *Volume) context() map[string]string {
	v.Helper()
	a := attrs.Attachment{Fencing: attrs.FencingBackend, Connection: backend.Connection{Transport: backend.ISCSI, Target: v.Target.Name(), LUN: 1,
		Initiator: "iqn.2026-01.test:n1:e1", Epoch: "e1", Content: backend.ContentBlank}}
	for _, p := range v.Portals {
		a.Portals = append(a.Portals, backend.Portal{Address: p.Addr(), Group: 1})
	}
	c, err := attrs.PublishContext(a)
	v.must(err)
	return c
}

// Up stages and publishes the volume.
func (v *Volume) Up() {
	v.Helper()
	c := v.context()
	v.retry("stage", func(ctx context.Context) error {
		_, err := v.csi.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: "vol", StagingTargetPath: v.staging(), VolumeCapability: v.capability(), PublishContext: c})
		return err
	})
	v.retry("publish", func(ctx context.Context) error {
		_, err := v.csi.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: "vol", StagingTargetPath: v.staging(), TargetPath: v.Path(),
			VolumeCapability: v.capability(), PublishContext: c})
		return err
	})
}

// Down unpublishes and unstages it.
func (v *Volume) Down() {
	v.Helper()
	v.retry("unpublish", func(ctx context.Context) error {
		_, err := v.csi.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: "vol", TargetPath: v.Path()})
		return err
	})
	v.retry("unstage", func(ctx context.Context) error {
		_, err := v.csi.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: "vol", StagingTargetPath: v.staging()})
		return err
	})
}

// Grow makes the volume larger at the storage, and the node see it.
func (v *Volume) Grow(size int64) {
	v.Helper()
	v.must(v.Target.Grow(1, uint64(size)))
	v.retry("expand", func(ctx context.Context) error {
		r, err := v.csi.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{VolumeId: "vol", VolumePath: v.Path(), CapacityRange: &csi.CapacityRange{RequiredBytes: size}})
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
	v.retry("stats", func(ctx context.Context) error {
		r, err := v.csi.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: "vol", VolumePath: v.Path()})
		for _, u := range r.GetUsage() {
			if u.Unit == csi.VolumeUsage_BYTES {
				total = u.Total
			}
		}
		return err
	})
	return total
}
