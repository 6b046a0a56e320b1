package driver

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/csi-mpath/csi-mpath/pkg/agent"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/embedded"
	"github.com/csi-mpath/csi-mpath/pkg/agent/keeper"
	"github.com/csi-mpath/csi-mpath/pkg/agent/pki"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store/memory"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/backend/agentclient"
	"github.com/csi-mpath/csi-mpath/test/node"
)

// storageHost is an agent over mutual TLS, with files and the embedded target.
func storageHost(t *testing.T) BackendConfig {
	t.Helper()
	var exports []export.Exporter
	for _, tr := range []backend.Transport{backend.ISCSI, backend.NVMe} {
		x, err := embedded.New(embedded.Config{Transport: tr, Portals: []embedded.Portal{{Listen: "127.0.0.1:0"}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = x.Close() })
		exports = append(exports, x)
	}
	files := memory.New(memory.Config{Dir: t.TempDir(), Snapshots: true})
	k, err := keeper.Open(t.Context(), keeper.Config{State: t.TempDir(), Pools: []keeper.Pool{{Name: "fast", Store: files, Exports: exports}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	certs := t.TempDir()
	if _, err := pki.Init(certs, []string{"127.0.0.1"}, "cluster", time.Now()); err != nil {
		t.Fatal(err)
	}
	file := func(name string) string { return filepath.Join(certs, name) }
	s, err := agent.New(agent.Config{For: k.For, TLS: pki.Files{Cert: file("server.crt"), Key: file("server.key"), CA: file("ca.crt")}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Shutdown(context.Background())
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return BackendConfig{Name: "east", Agent: &AgentConfig{Address: l.Addr().String(), CA: file("ca.crt"), Certificate: file("client-cluster.crt"), Key: file("client-cluster.key")}}
}

// overAgent is a controller of one storage host.
func overAgent(t *testing.T) *Controller {
	t.Helper()
	b, err := NewBackends(Config{Cluster: cluster, Backends: []BackendConfig{storageHost(t)}}, func(c BackendConfig) (backend.Backend, error) {
		return agentclient.New(agentclient.Config{Address: c.Agent.Address, TLS: pki.Files{Cert: c.Agent.Certificate, Key: c.Agent.Key, CA: c.Agent.CA}})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return &Controller{Backends: b}
}

// attach logs in to what a node was told.
func attach(t *testing.T, c *Controller, v *csi.Volume, nodeID string) *node.Disk {
	t.Helper()
	a := published(t, c, publish(v, nodeID, raw(rwo)))
	d, err := node.Attach(t.Context(), a.Connection, backend.Auth{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// TestAVolumesLifeAtAStorageHost: made, written to, copied, expanded, taken from
// its node, and gone, over the controller, mutual TLS and a real target.
func TestAVolumesLifeAtAStorageHost(t *testing.T) {
	for _, transport := range []string{"iscsi", "nvme-tcp"} {
		t.Run(transport, func(t *testing.T) { life(t, overAgent(t), transport) })
	}
}

func life(t *testing.T, c *Controller, transport string) {
	ctx, old, fresh := t.Context(), bytes.Repeat([]byte("old!"), 1024), bytes.Repeat([]byte("new!"), 1024)
	v := create(t, c, "v", map[string]string{"transport": transport})
	first := attach(t, c, v, "node-1")
	holds(t, first, make([]byte, len(old)), "a new volume")
	put(t, first, old)
	s, err := c.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: v.VolumeId})
	if err != nil {
		t.Fatal(err)
	}
	put(t, first, fresh)
	r := asked("copy", map[string]string{"transport": transport})
	r.CapacityRange, r.VolumeContentSource = nil, fromSnapshot(s.Snapshot.SnapshotId)
	copied, err := c.CreateVolume(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, attach(t, c, copied.Volume, "node-1"), old, "a copy of the snapshot")
	grown, err := c.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: v.VolumeId, CapacityRange: &csi.CapacityRange{RequiredBytes: 64 * mib}})
	if err != nil || grown.CapacityBytes < 64*mib {
		t.Errorf("expanded: got %v, %v", grown, err)
	}
	holds(t, first, fresh, "after it was expanded")

	_, err = c.ControllerPublishVolume(ctx, publish(v, "node-2", raw(rwo)))
	is(t, err, codes.FailedPrecondition, "a second node")
	unpublish(t, c, v, "node-1")
	if _, err := first.WriteAt(old, 0); err == nil {
		t.Error("a node that was unpublished wrote")
	}
	second := attach(t, c, v, "node-2")
	holds(t, second, fresh, "what the next node sees")

	for _, v := range []*csi.Volume{v, copied.Volume} {
		unpublish(t, c, v, "")
		if _, err := c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.VolumeId}); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: s.Snapshot.SnapshotId}); err != nil {
		t.Error(err)
	}
	if left := volumes(t, c, 0); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func put(t *testing.T, d *node.Disk, b []byte) {
	t.Helper()
	if _, err := d.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
}

func holds(t *testing.T, d *node.Disk, want []byte, what string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := d.ReadAt(got, 0); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got %q..., want %q...", what, got[:8], want[:8])
	}
}
