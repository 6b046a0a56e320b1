package story

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/test/cluster"
	"github.com/csi-mpath/csi-mpath/test/faultproxy"
	"github.com/csi-mpath/csi-mpath/test/kubelet"
	"github.com/csi-mpath/csi-mpath/test/vm/writers"
)

const (
	// patience bounds each step, on however slow a machine.
	patience = 4 * time.Minute
	// giveUp is the volumes' noPathTimeout: how long a node that was fenced holds
	// its writes before they fail.
	giveUp = "10s"
	// loads that a volume has, of workers each, which write to a range of reach bytes.
	workers = 2
	reach   = 512 << 10
)

// teller makes the calls of one story.
type teller struct {
	*testing.T
	c         *cluster.Cluster
	transport backend.Transport
	kind      string
}

func begin(t *testing.T, c *cluster.Cluster, transport backend.Transport, kind string) *teller {
	return &teller{t, c, transport, kind}
}

func (s *teller) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// name is one of this story's objects.
func (s *teller) name(what string) string {
	return strings.ToLower(strings.ReplaceAll(s.Name(), "/", "-")) + "-" + what
}

func from(snapshot string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snapshot}}}
}

func (s *teller) create(what string, size int64, source *csi.VolumeContentSource) (v *csi.Volume) {
	s.Helper()
	kubelet.Done(s, "create "+what, func(ctx context.Context) error {
		r, err := s.c.Controller.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: s.name(what), CapacityRange: &csi.CapacityRange{RequiredBytes: size},
			VolumeCapabilities: []*csi.VolumeCapability{kubelet.Capability(s.kind)}, VolumeContentSource: source,
			Parameters: map[string]string{"transport": string(s.transport), "noPathTimeout": giveUp}})
		v = r.GetVolume()
		return err
	})
	return v
}

// publish gives a node the volume; what is returned is not staged yet.
func (s *teller) publish(v *csi.Volume, n *cluster.Node) *kubelet.Volume {
	s.Helper()
	dir := filepath.Join(n.Dir, filepath.Base(v.VolumeId))
	s.must(os.MkdirAll(dir, 0o700))
	on := kubelet.On(s, n, dir, v.VolumeId, s.kind)
	on.Context = v.VolumeContext
	kubelet.Done(s, "publish to "+n.Name, func(ctx context.Context) error {
		r, err := s.c.Controller.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: v.VolumeId, NodeId: n.Name,
			VolumeCapability: kubelet.Capability(s.kind), VolumeContext: v.VolumeContext})
		on.PublishContext = r.GetPublishContext()
		return err
	})
	return on
}

// unpublish takes it away from the node, whatever the node does.
func (s *teller) unpublish(v *csi.Volume, n *cluster.Node) {
	s.Helper()
	kubelet.Done(s, "unpublish from "+n.Name, func(ctx context.Context) error {
		_, err := s.c.Controller.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: v.VolumeId, NodeId: n.Name})
		return err
	})
}

// write begins load number n of a volume: each has blocks of its own.
func (s *teller) write(on *kubelet.Volume, n int) *load {
	s.Helper()
	cfg := writers.Config{Size: reach, Max: workers, Seed: uint64(n)}
	if s.kind == kubelet.Raw {
		cfg.Path, cfg.Base = on.File(), int64(n)*workers*reach
	} else {
		cfg.Dir = filepath.Join(on.Path(), folder(n))
		s.must(os.Mkdir(cfg.Dir, 0o700))
	}
	l, err := writers.Start(cfg, workers)
	s.must(err)
	x := &load{l, n}
	s.moves(x)
	return x
}

// load is what is being written, and knows what was acknowledged.
type load struct {
	*writers.Load
	n int
}

func folder(n int) string { return []string{"first", "second", "third"}[n] }

// moves waits until every writer has done some more.
func (s *teller) moves(l *load) {
	s.Helper()
	for range 8 {
		s.must(l.Progress(s.ctx()))
	}
}

// ends stops a load that saw no error.
func (s *teller) ends(l *load) {
	s.Helper()
	r, err := l.Stop(s.ctx())
	s.must(err)
	s.Logf("%s: %d writes, %d reads, longest %v", folder(l.n), r.Writes, r.Reads, l.TakeStall().For.Round(time.Millisecond))
}

// stopped wants that a load's writes fail: its node has lost the volume.
func (s *teller) stopped(l *load) {
	s.Helper()
	ctx := s.ctx()
	for l.Err() == nil && ctx.Err() == nil {
		if err := l.Progress(ctx); err == nil {
			continue // what was acknowledged before
		}
	}
	if _, err := l.Stop(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
		s.Fatalf("a node that was fenced writes on: %v", err)
	}
}

// holds wants every acknowledged write of these loads on the volume.
func (s *teller) holds(on *kubelet.Volume, loads ...*load) {
	s.Helper()
	for _, l := range loads {
		at := on.File()
		if s.kind != kubelet.Raw {
			at = filepath.Join(on.Path(), folder(l.n))
		}
		s.must(l.Verify(s.ctx(), at))
	}
}

// losePath takes one of two portals away under a load, and gives it back.
func (s *teller) losePath(l *load) {
	s.Helper()
	portal := s.c.Portals[s.transport][0]
	portal.Refuse()
	s.must(portal.Now(faultproxy.Fault{Kind: faultproxy.Reset}))
	s.moves(l)
	s.must(portal.Accept())
	s.moves(l)
}

// grow makes the volume larger at the storage.
func (s *teller) grow(id string, size int64) {
	s.Helper()
	kubelet.Done(s, "expand", func(ctx context.Context) error {
		_, err := s.c.Controller.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: size}})
		return err
	})
}

// expand makes a volume larger while it is in use, expandAway while it is not.
func (s *teller) expand(on *kubelet.Volume, size int64) {
	s.Helper()
	before := on.Total()
	s.grow(on.ID, size)
	on.Expand(size)
	if after := on.Total(); after <= before {
		s.Errorf("%d bytes, and %d after it grew", before, after)
	}
}

func (s *teller) expandAway(on *kubelet.Volume, size int64) {
	s.Helper()
	before := on.Total()
	on.Down()
	s.grow(on.ID, size)
	on.Up()
	if after := on.Total(); after <= before {
		s.Errorf("%d bytes, and %d after it grew", before, after)
	}
}

// longer wants that a volume that was made larger than its source is.
func (s *teller) longer(on, than *kubelet.Volume) {
	s.Helper()
	if a, b := on.Total(), than.Total(); a <= b {
		s.Errorf("the clone has %d bytes, its source %d", a, b)
	}
}

func (s *teller) snapshot(v *csi.Volume, what string) (id string) {
	s.Helper()
	kubelet.Done(s, "snapshot", func(ctx context.Context) error {
		r, err := s.c.Controller.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: s.name(what), SourceVolumeId: v.VolumeId})
		id = r.GetSnapshot().GetSnapshotId()
		return err
	})
	return id
}

func (s *teller) forget(snapshot string) {
	s.Helper()
	kubelet.Done(s, "delete snapshot", func(ctx context.Context) error {
		_, err := s.c.Controller.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: snapshot})
		return err
	})
}

func (s *teller) remove(v *csi.Volume) {
	s.Helper()
	kubelet.Done(s, "delete", func(ctx context.Context) error {
		_, err := s.c.Controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.VolumeId})
		return err
	})
}
