package whole

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-mpath/csi-mpath/pkg/attach/attachtest"
	"github.com/csi-mpath/csi-mpath/pkg/driver"
	"github.com/csi-mpath/csi-mpath/pkg/mount/mounttest"
)

// seat is a volume's place on one node.
type seat struct {
	t       *testing.T
	c       *driver.Controller
	v       *csi.Volume
	node    *driver.Node
	machine *attachtest.Node
	staging string
}

func sit(t *testing.T, c *driver.Controller, v *csi.Volume, id string) *seat {
	t.Helper()
	dir := shortDir(t)
	n, m := NewNode(t, dir, id)
	return &seat{t: t, c: c, v: v, node: n, machine: m, staging: filepath.Join(dir, "g")}
}

// take publishes the volume to the node, and stages it there.
func (s *seat) take() mounttest.Disk {
	s.t.Helper()
	told, err := s.c.ControllerPublishVolume(s.t.Context(), publish(s.v, s.node.ID))
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.node.NodeStageVolume(s.t.Context(), &csi.NodeStageVolumeRequest{VolumeId: s.v.VolumeId, VolumeContext: s.v.VolumeContext,
		PublishContext: told.PublishContext, StagingTargetPath: s.staging, VolumeCapability: raw()}); err != nil {
		s.t.Fatal(err)
	}
	return s.machine.Disk(s.v.VolumeId)
}

func (s *seat) leave() {
	s.t.Helper()
	if _, err := s.node.NodeUnstageVolume(s.t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: s.v.VolumeId, StagingTargetPath: s.staging}); err != nil {
		s.t.Fatal(err)
	}
	unpublish(s.t, s.c, s.v, s.node.ID)
}

// A node lost its kubelet only, and its pod goes on writing: it is forced off, another
// node has the volume, and the first one comes back.
func TestD19ANodeThatWasForcedOffWritesNothing(t *testing.T) {
	for _, transport := range []string{"iscsi", "nvme-tcp"} {
		t.Run(transport, func(t *testing.T) {
			c := New(t).Controller
			c.HasNode = nil
			r := asked("v", transport, 10<<20)
			r.Parameters["keepAliveTimeout"] = "500ms" // what the clock's fence is made of
			v := create(t, c, r)
			lost, next := sit(t, c, v, "lost"), sit(t, c, v, "next")
			zombie := lost.take()
			writing, failed := make(chan struct{}), make(chan error, 1)
			go func() {
				for i := 0; ; i++ {
					if _, err := zombie.WriteAt(bytes.Repeat([]byte("z"), 4096), 0); err != nil {
						failed <- err
						return
					}
					if i == 100 {
						close(writing)
					}
				}
			}()
			<-writing
			unpublish(t, c, v, "lost") // nobody unstages it there
			d := next.take()
			ours := bytes.Repeat([]byte("n"), 4096)
			if _, err := d.WriteAt(ours, 0); err != nil {
				t.Fatal(err)
			}
			same(t, d, ours, "while the zombie wants to write")
			next.leave()

			d = lost.take() // it comes back, under another publication
			if err := <-failed; err == nil {
				t.Error("a write of the publication that was taken away succeeded")
			}
			same(t, d, ours, "when the zombie was published anew")
			lost.leave()
			if _, err := c.DeleteVolume(context.Background(), &csi.DeleteVolumeRequest{VolumeId: v.VolumeId}); err != nil {
				t.Error(err)
			}
		})
	}
}

func same(t *testing.T, d mounttest.Disk, want []byte, when string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := d.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %q..., %v", when, got[:4], err)
	}
}
