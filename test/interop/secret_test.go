//go:build interop

package interop

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/csi-mpath/csi-mpath/test/child"
	"github.com/csi-mpath/csi-mpath/test/host"
	"github.com/csi-mpath/csi-mpath/test/kubelet"
	"github.com/csi-mpath/csi-mpath/test/marked"
	"github.com/csi-mpath/csi-mpath/test/port"
)

// output is what processes print.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

// secretive is the whole driver in processes, and a caller with secrets.
type secretive struct {
	*testing.T
	marked.Caller
	out              output
	dir, host        string
	controller, node grpc.ClientConnInterface
	metrics          []string
}

func newSecretive(t *testing.T) *secretive {
	t.Helper()
	s := &secretive{T: t}
	for _, d := range []*string{&s.dir, &s.host} {
		var err error
		*d, err = os.MkdirTemp("", "sec")
		must(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(*d) })
	}
	h, err := host.NewWith(os.Getenv("CSI_MPATH_BIN"), s.host, host.Options{Output: &s.out})
	must(t, err)
	t.Cleanup(func() { must(t, h.Close()) })
	must(t, h.Start(t.Context()))
	at := h.Tenant()
	config := fmt.Sprintf("cluster: c\nbackends:\n- name: east\n  agent: {address: %q, ca: %s, certificate: %s, key: %s}\n", at.Address, at.TLS.CA, at.TLS.Cert, at.TLS.Key)
	must(t, os.WriteFile(s.dir+"/controller.yaml", []byte(config), 0o600))
	s.controller = s.start("controller", "--config", s.dir+"/controller.yaml")
	s.node = s.start("node", "--attach", "fuse", "--node-name", "n1", "--cluster", "c", "--state-dir", s.dir+"/state")
	return s
}

// start starts one half, with its socket, metrics, and all of its log.
func (s *secretive) start(what string, args ...string) grpc.ClientConnInterface {
	s.Helper()
	p, err := port.Hold()
	must(s.T, err)
	must(s.T, p.Close())
	s.metrics = append(s.metrics, p.Addr())
	endpoint := "unix://" + s.dir + "/" + what
	c, err := child.Start(child.Options{Stdout: &s.out, Stderr: &s.out}, os.Getenv("CSI_MPATH_BIN"),
		append([]string{what, "--endpoint", endpoint, "--metrics", p.Addr(), "-v", "10"}, args...)...)
	must(s.T, err)
	s.Cleanup(func() { must(s.T, c.Stop(time.Minute)) })
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), grpc.WithUnaryInterceptor(s.Intercept))
	must(s.T, err)
	s.Cleanup(func() { _ = conn.Close() })
	return conn
}

// life is a volume's, staged with those secrets that cannot be used first.
func (s *secretive) life(transport, kind string, faulty map[string]map[string]string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 3*time.Minute)
	defer cancel()
	c, n := csi.NewControllerClient(s.controller), csi.NewNodeClient(s.node)
	s.Use(marked.Right())
	v := kubelet.On(s.T, n, s.dir, "", kind)
	kubelet.Done(s, "create", func(context.Context) error {
		made, err := c.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: transport + kind, Parameters: map[string]string{"transport": transport},
			VolumeCapabilities: []*csi.VolumeCapability{kubelet.Capability(kind)}, CapacityRange: &csi.CapacityRange{RequiredBytes: kubelet.Size}})
		v.ID, v.Context = made.GetVolume().GetVolumeId(), made.GetVolume().GetVolumeContext()
		return err
	})
	publish := func() error {
		told, err := c.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: v.ID, VolumeContext: v.Context, NodeId: "n1", VolumeCapability: kubelet.Capability(kind)})
		if err == nil {
			v.PublishContext = told.PublishContext
		}
		return err
	}
	for what, secrets := range faulty {
		s.Log(what)
		s.Use(secrets)
		_ = publish()
		s.Use(marked.Right())
		must(s.T, publish())
		s.Use(secrets)
		_, _ = n.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: v.ID, VolumeContext: v.Context, PublishContext: v.PublishContext,
			StagingTargetPath: filepath.Join(s.dir, "g"), VolumeCapability: kubelet.Capability(kind)})
		_, err := n.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: v.ID, StagingTargetPath: filepath.Join(s.dir, "g")})
		must(s.T, err)
	}
	s.Use(marked.Right())
	must(s.T, publish())
	v.Up()
	must(s.T, os.WriteFile(v.File(), []byte("data"), 0o600))
	_ = v.Total()
	s.searchFiles()
	v.Down()
	_, err := c.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: v.ID, NodeId: "n1"})
	must(s.T, err)
	_, err = c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.ID})
	must(s.T, err)
	s.searchFiles()
}

func (s *secretive) searchFiles() {
	s.Helper()
	for dir, may := range map[string]func(string) bool{
		s.dir + "/state": func(string) bool { return false },
		s.host:           func(path string) bool { return strings.HasPrefix(path, "state/") },
	} {
		found, err := marked.Files(dir, may)
		if err != nil || len(found) > 0 {
			s.Errorf("files with secrets: %v, %v", found, err)
		}
	}
}

// Secrets in each call, of processes with all of their log: none comes out, in no
// form, and none is seen at the programs that they start (I10).
func TestSecretsOfProcessesComeOutNowhere(t *testing.T) {
	s := newSecretive(t)
	stop, looked := make(chan struct{}), make(chan int, 1)
	go func() { looked <- watchProcesses(t, stop) }()
	for _, transport := range []string{"iscsi", "nvme-tcp"} {
		s.life(transport, "ext4", marked.Faulty())
	}
	s.life("iscsi", "xfs", nil)
	close(stop)
	programs := <-looked
	if programs < 10 {
		t.Errorf("only %d programs were seen", programs)
	}
	for _, at := range s.metrics {
		r, err := http.Get("http://" + at + "/metrics")
		must(t, err)
		b, err := io.ReadAll(r.Body)
		must(t, err)
		_ = r.Body.Close()
		if marked.In(b) || !bytes.Contains(b, []byte("csi_mpath_rpc_seconds")) {
			t.Errorf("metrics: %s", b)
		}
	}
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	keys := privateKeys(t, s.host)
	for line := range strings.Lines(s.out.b.String()) {
		if marked.In([]byte(line)) || slices.ContainsFunc(keys, func(k string) bool { return strings.Contains(line, k) }) {
			t.Errorf("printed: %s", line)
		}
	}
	for _, f := range s.Found() {
		t.Errorf("an answer: %s", f)
	}
	t.Logf("%d bytes of output, %d programs, calls %v", s.out.b.Len(), programs, s.Called())
}

// privateKeys are parts of the keys of the certificates that agent and controller have:
// a line of each.
func privateKeys(t *testing.T, dir string) (parts []string) {
	files, err := filepath.Glob(dir + "/tls/*.key")
	must(t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		must(t, err)
		parts = append(parts, strings.Split(string(b), "\n")[1])
	}
	if len(parts) < 2 || len(parts[0]) < 40 {
		t.Fatalf("no keys in %s: %v", dir, files)
	}
	return parts
}

// watchProcesses looks at the arguments and environments of all processes again and
// again, and counts those it saw.
func watchProcesses(t *testing.T, stop <-chan struct{}) int {
	seen := map[string]bool{}
	for {
		select {
		case <-stop:
			return len(seen)
		default:
		}
		all, _ := filepath.Glob("/proc/[0-9]*")
		for _, p := range all {
			for _, f := range []string{"/cmdline", "/environ"} {
				b, _ := os.ReadFile(p + f) // it may have ended
				if f == "/cmdline" && len(b) > 0 {
					seen[p] = true
				}
				if marked.In(b) {
					t.Errorf("%s%s: %q", p, f, b)
				}
			}
		}
	}
}
