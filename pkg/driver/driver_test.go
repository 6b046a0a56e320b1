package driver

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/backend/memory"
)

const (
	mib     = 1 << 20
	cluster = "c1b5e0f2"
)

// The log is for those who look for something in it.
func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	m.Run()
}

// flaky is a backend that can be out of reach.
type flaky struct {
	backend.Backend
	down   bool
	closed int
}

var errDown = errors.Join(backend.ErrUnavailable, errors.New("no route"))

func (f *flaky) Volumes(ctx context.Context, p backend.Page) ([]backend.Volume, string, error) {
	if f.down {
		return nil, "", errDown
	}
	return f.Backend.Volumes(ctx, p)
}

func (f *flaky) Info(ctx context.Context) (backend.Info, error) {
	if f.down {
		return backend.Info{}, errDown
	}
	return f.Backend.Info(ctx)
}

func (f *flaky) Close() error { f.closed++; return nil }

// storage is a backend in memory with a pool for both transports.
func storage() *flaky {
	s := memory.New(memory.Config{
		Pools: []backend.Pool{{Name: "fast", Transports: []backend.Transport{backend.ISCSI, backend.NVMe}, Snapshots: true, SnapshotsInUse: true,
			Step: 4 * mib, Min: 4 * mib, Max: 1 << 40}},
		Portals: map[backend.Transport][]backend.Portal{
			backend.ISCSI: {{Address: "192.0.2.1:3260", Group: 1}, {Address: "192.0.2.2:3260", Group: 1}},
			backend.NVMe:  {{Address: "192.0.2.1:4420", Group: 1}},
		},
	})
	return &flaky{Backend: s.For("tenant")}
}

// agentAt is a configuration that can be.
func agentAt(name string) BackendConfig {
	return BackendConfig{Name: name, Agent: &AgentConfig{Address: name + ".example:7443", CA: "/ca", Certificate: "/crt", Key: "/key"}}
}

// newController has a backend in memory for each name.
func newController(t *testing.T, names ...string) *Controller {
	t.Helper()
	cfg := Config{Cluster: cluster}
	for _, n := range names {
		cfg.Backends = append(cfg.Backends, agentAt(n))
	}
	b, err := NewBackends(cfg, func(BackendConfig) (backend.Backend, error) { return storage(), nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return &Controller{Backends: b}
}

// of is a controller's backend.
func of(t *testing.T, c *Controller, name string) *flaky {
	t.Helper()
	e, err := c.Backends.current.Load().get(name)
	if err != nil {
		t.Fatal(err)
	}
	return e.Backend.(*flaky)
}

func mounted(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode}}
}

func raw(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode}}
}

const (
	rwo = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	rox = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	rwx = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	mw1 = csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER
)

func asked(name string, params map[string]string) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{Name: name, Parameters: params, VolumeCapabilities: []*csi.VolumeCapability{mounted(rwo)},
		CapacityRange: &csi.CapacityRange{RequiredBytes: 10 * mib}}
}

func create(t *testing.T, c *Controller, name string, params map[string]string) *csi.Volume {
	t.Helper()
	r, err := c.CreateVolume(t.Context(), asked(name, params))
	if err != nil {
		t.Fatal(err)
	}
	return r.Volume
}

func publish(v *csi.Volume, node string, cap *csi.VolumeCapability) *csi.ControllerPublishVolumeRequest {
	return &csi.ControllerPublishVolumeRequest{VolumeId: v.VolumeId, VolumeContext: v.VolumeContext, NodeId: node, VolumeCapability: cap}
}

// is fails the test unless an error has a code.
func is(t *testing.T, err error, want codes.Code, what string) string {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s: got %v (%v), want %v", what, got, err, want)
	}
	return status.Convert(err).Message()
}

// validate asks whether a volume can be used.
func validate(t *testing.T, c *Controller, id string) error {
	t.Helper()
	_, err := c.ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{VolumeId: id, VolumeCapabilities: []*csi.VolumeCapability{mounted(rwo)}})
	return err
}

// nobody is a cluster without nodes.
func nobody(context.Context, string) (bool, error) { return false, nil }

// shortDir is for sockets, whose paths must be short.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
