package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/csi-mpath/csi-mpath/pkg/agent/keeper"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/driver"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
	storagehost "github.com/csi-mpath/csi-mpath/test/host"
)

// asCommand makes this test binary csi-mpath.
const asCommand = "CSI_MPATH_TEST_COMMAND"

// self is this test binary.
var self string

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// mortal is a storage host and a controller, one of which is killed.
type mortal struct {
	t     *testing.T
	dir   string
	h     *storagehost.Host
	c     csi.ControllerClient
	kills int
	// again starts what was killed, if it was.
	again func() (killed bool)
}

// newMortal has a controller in this process.
func newMortal(t *testing.T) *mortal {
	t.Helper()
	m := withHost(t)
	m.again = m.agentAgain
	east := driver.BackendConfig{Name: "east", Agent: &driver.AgentConfig{Address: "in.the:opener"}}
	b, err := driver.NewBackends(driver.Config{Cluster: "c", Backends: []driver.BackendConfig{east}}, func(driver.BackendConfig) (backend.Backend, error) { return m.h.Client() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	l, err := driver.Listen(m.endpoint())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() {
		done <- driver.Serve(ctx, l, func(s *grpc.Server) { csi.RegisterControllerServer(s, &driver.Controller{Backends: b}) }, nil)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return m
}

// withHost has a storage host, and nobody who serves its controller yet.
func withHost(t *testing.T) *mortal {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi") // there are sockets in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if self, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	m := &mortal{t: t, dir: dir}
	if m.h, err = storagehost.New(self, dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.h.Close() })
	// Not waiting for a server: it is started again when a call has failed.
	conn, err := grpc.NewClient(m.endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond}, MinConnectTimeout: time.Second}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	m.c = csi.NewControllerClient(conn)
	return m
}

func (m *mortal) endpoint() string { return "unix://" + m.dir + "/csi.sock" }

// agentAgain starts the agent if it was killed.
func (m *mortal) agentAgain() bool {
	select {
	case <-m.h.Done():
		m.start("")
		return true
	default:
		return false
	}
}

// start starts the agent, to be killed at a fault point if that is not empty.
func (m *mortal) start(point string) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	if err := m.h.Start(ctx, asCommand+"=1", faultpoint.Env+"="+point); err != nil {
		m.t.Fatal(err)
	}
}

// done makes a call until it is done, as sidecars do: while somebody is away it is
// unavailable, and after a kill somebody starts it again.
func (m *mortal) done(what string, call func(ctx context.Context) error) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := call(ctx)
		if err == nil {
			return
		}
		if c := status.Code(err); (c != codes.Unavailable && c != codes.Aborted) || ctx.Err() != nil {
			m.t.Fatalf("%s: %v", what, err)
		}
		<-tick.C
		if m.again() {
			m.kills++
		}
	}
}

// life is all that a volume without copies goes through.
func (m *mortal) life() {
	m.t.Helper()
	capability := &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	var v *csi.Volume
	m.done("CreateVolume", func(ctx context.Context) error {
		r, err := m.c.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "v", VolumeCapabilities: []*csi.VolumeCapability{capability}, CapacityRange: &csi.CapacityRange{RequiredBytes: 8 << 20}})
		v = r.GetVolume()
		return err
	})
	m.done("ControllerPublishVolume", func(ctx context.Context) error {
		_, err := m.c.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: v.VolumeId, NodeId: "node-1", VolumeCapability: capability})
		return err
	})
	m.done("ControllerExpandVolume", func(ctx context.Context) error {
		r, err := m.c.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: v.VolumeId, CapacityRange: &csi.CapacityRange{RequiredBytes: 16 << 20}})
		if err == nil && r.CapacityBytes != 16<<20 {
			m.t.Errorf("expanded to %d bytes", r.CapacityBytes)
		}
		return err
	})
	m.done("ControllerModifyVolume", func(ctx context.Context) error {
		_, err := m.c.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{VolumeId: v.VolumeId, MutableParameters: map[string]string{"polling": "off"}})
		return err
	})
	m.listed(1)
	m.done("ControllerUnpublishVolume", func(ctx context.Context) error {
		_, err := m.c.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: v.VolumeId, NodeId: "node-1"})
		return err
	})
	m.done("DeleteVolume", func(ctx context.Context) error {
		_, err := m.c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.VolumeId})
		return err
	})
	m.listed(0)
}

// listed wants that many volumes, each with one node.
func (m *mortal) listed(want int) {
	m.t.Helper()
	m.done("ListVolumes", func(ctx context.Context) error {
		r, err := m.c.ListVolumes(ctx, &csi.ListVolumesRequest{})
		if err != nil {
			return err
		}
		if len(r.Entries) != want || (want > 0 && (len(r.Entries[0].Status.PublishedNodeIds) != 1 || r.Entries[0].Volume.CapacityBytes != 16<<20)) {
			m.t.Errorf("listed: %v, want %d", r.Entries, want)
		}
		return nil
	})
}

// TestACSICallIsFinishedWhereverTheAgentIsKilled tells a volume's life once for each
// fault point of the agent that it comes to: a process that is killed there, with
// SIGKILL, and started again.
func TestACSICallIsFinishedWhereverTheAgentIsKilled(t *testing.T) {
	m := newMortal(t)
	points := []string{"directory.create.made", "directory.create.recorded", "directory.create.ready", "directory.delete.marked", "directory.delete.removed", "directory.expand.grown"}
	for _, p := range keeper.Points {
		// Not in this life: copies, fences, one of several nodes, and starts.
		if !strings.Contains(p, "snapshot") && !strings.Contains(p, "quiesced") && !strings.Contains(p, "fence") && !strings.Contains(p, "revoked") && !strings.Contains(p, "restore") {
			points = append(points, p)
		}
	}
	for _, p := range points {
		m.kills = 0
		m.start(p)
		m.life()
		if m.kills != 1 {
			t.Errorf("%s: the agent was killed %d times", p, m.kills)
		}
		if left, err := m.h.Left(); err != nil || len(left) > 0 {
			t.Errorf("%s: left behind: %v, %v", p, left, err)
		}
		m.h.Kill()
	}
	t.Logf("%d kills", len(points))
}
