package whole

import (
	"bytes"
	"flag"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/klog/v2"

	"github.com/csi-mpath/csi-mpath/test/marked"
)

// logBuffer is a log that a test reads.
type logBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// everything has all logs of this process, at the highest verbosity.
func everything(t *testing.T) *logBuffer {
	t.Helper()
	b := &logBuffer{}
	set := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(set)
	if err := set.Set("v", "10"); err != nil {
		t.Fatal(err)
	}
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.Level(-10)})))
	t.Cleanup(func() {
		_ = set.Set("v", "0")
		klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	})
	return b
}

// caller is a client of both halves with secrets in each call that takes them.
type caller struct {
	marked.Caller
	csi.ControllerClient
	node csi.NodeClient
}

func newCaller(t *testing.T, socket string) *caller {
	t.Helper()
	c := &caller{}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(c.Intercept))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c.ControllerClient, c.node = csi.NewControllerClient(conn), csi.NewNodeClient(conn)
	return c
}

// TestSecretsComeOutNowhere has recognizable secrets in every call that takes some,
// right ones and all kinds of wrong ones, and looks through all that comes out (I10).
// test/interop has the same of processes.
func TestSecretsComeOutNowhere(t *testing.T) {
	log := everything(t)
	w := NewLogged(t, slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.Level(-10)})))
	c := newCaller(t, w.Serve(t))
	for _, transport := range []string{"iscsi", "nvme-tcp"} {
		c.Use(marked.Right())
		c.secretLife(t, w, transport, true)
		for what, secrets := range marked.Faulty() {
			t.Log(transport, what)
			c.Use(secrets)
			c.secretLife(t, w, transport, false)
		}
	}
	log.mu.Lock()
	for line := range strings.Lines(log.String()) {
		if marked.In([]byte(line)) {
			t.Errorf("the log has %s", line)
		}
	}
	t.Logf("%d bytes of log", log.Len())
	log.mu.Unlock()
	for _, f := range c.Found() {
		t.Errorf("an answer has one: %s", f)
	}
	if called := slices.Sorted(maps.Keys(c.Called())); len(called) != 13 {
		t.Errorf("with secrets were %d kinds of calls: %v", len(called), called)
	}
}

// secretLife is a volume's life through all calls that take secrets; good: they work.
func (c *caller) secretLife(t *testing.T, w *Driver, transport string, good bool) {
	t.Helper()
	ctx, staging, target := t.Context(), filepath.Join(w.Dir, "g"), filepath.Join(w.Dir, "t")
	must := func(err error) {
		t.Helper()
		if good && err != nil {
			t.Fatal(err)
		}
	}
	made, err := c.CreateVolume(ctx, asked("v", transport, 8<<20))
	if err != nil {
		t.Fatal(err)
	}
	v := made.Volume
	told, err := c.ControllerPublishVolume(ctx, publish(v, "node-1"))
	must(err)
	stage := &csi.NodeStageVolumeRequest{VolumeId: v.VolumeId, VolumeContext: v.VolumeContext, PublishContext: told.GetPublishContext(),
		StagingTargetPath: staging, VolumeCapability: raw()}
	if !good { // published as it should be, and staged with what is wrong
		p, err := w.ControllerPublishVolume(ctx, withSecrets(publish(v, "node-1"), marked.Right()))
		if err != nil {
			t.Fatal(err)
		}
		stage.PublishContext = p.PublishContext
	}
	_, err = c.node.NodeStageVolume(ctx, stage)
	must(err)
	for range 2 {
		_, err = c.node.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: v.VolumeId, StagingTargetPath: staging, TargetPath: target,
			VolumeContext: v.VolumeContext, PublishContext: stage.PublishContext, VolumeCapability: raw()})
		must(err)
	}
	c.searchFiles(t, w)
	s, err := c.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: v.VolumeId})
	must(err)
	_, err = c.ListSnapshots(ctx, &csi.ListSnapshotsRequest{SourceVolumeId: v.VolumeId})
	must(err)
	size := &csi.CapacityRange{RequiredBytes: 16 << 20}
	_, err = c.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: v.VolumeId, CapacityRange: size})
	must(err)
	_, err = c.node.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{VolumeId: v.VolumeId, VolumePath: target, CapacityRange: size})
	must(err)
	_, err = c.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{VolumeId: v.VolumeId, MutableParameters: map[string]string{"polling": "off"}})
	must(err)
	_, err = c.ValidateVolumeCapabilities(ctx, &csi.ValidateVolumeCapabilitiesRequest{VolumeId: v.VolumeId, VolumeCapabilities: []*csi.VolumeCapability{raw()}})
	must(err)
	_, err = c.node.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: v.VolumeId, TargetPath: target})
	must(err)
	_, err = c.node.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: v.VolumeId, StagingTargetPath: staging})
	must(err)
	_, err = c.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: v.VolumeId, NodeId: "node-1"})
	must(err)
	_, err = c.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: s.GetSnapshot().GetSnapshotId()})
	must(err)
	if _, err = c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.VolumeId}); err != nil {
		t.Fatal(err)
	}
	c.searchFiles(t, w)
}

func withSecrets(r *csi.ControllerPublishVolumeRequest, s map[string]string) *csi.ControllerPublishVolumeRequest {
	r.Secrets = s
	return r
}

// searchFiles looks through all that the processes keep: only the storage host may
// know secrets in the clear, in its journal.
func (c *caller) searchFiles(t *testing.T, w *Driver) {
	t.Helper()
	for dir, may := range map[string]func(string) bool{
		w.Dir:  func(string) bool { return false },
		w.Host: func(path string) bool { return strings.HasPrefix(path, "state/") },
	} {
		found, err := marked.Files(dir, may)
		if err != nil || len(found) > 0 {
			t.Errorf("files with secrets: %v, %v", found, err)
		}
	}
}
