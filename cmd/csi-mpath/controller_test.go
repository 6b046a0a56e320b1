package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/csi-mpath/csi-mpath/pkg/agent/pki"
	"github.com/csi-mpath/csi-mpath/pkg/cluster"
	"github.com/csi-mpath/csi-mpath/pkg/driver"
	"github.com/csi-mpath/csi-mpath/test/port"
)

// controllerConfig is of one agent, at an address where nobody is.
func controllerConfig(t *testing.T) (file string) {
	t.Helper()
	dir := t.TempDir()
	if _, err := pki.Init(dir, []string{"127.0.0.1"}, "mine", time.Now()); err != nil {
		t.Fatal(err)
	}
	held, err := port.Hold()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Close() })
	file = filepath.Join(dir, "controller.yaml")
	write(t, file, "cluster: c\nbackends:\n- name: east\n  agent: {address: \""+held.Addr()+"\", ca: "+dir+"/ca.crt, certificate: "+
		dir+"/client-mine.crt, key: "+dir+"/client-mine.key}\n")
	return file
}

// TestAControllerAnswersWhileItsBackendIsDown, and ends when it is told to.
func TestAControllerAnswersWhileItsBackendIsDown(t *testing.T) {
	dir, err := os.MkdirTemp("", "csi")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f := controllerFlags{config: controllerConfig(t), endpoint: "unix://" + filepath.Join(dir, "s"), metrics: "127.0.0.1:0"}
	cfg, err := driver.LoadConfig(f.config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serveController(ctx, f, cfg) }()
	conn, err := grpc.NewClient(f.endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if r, err := csi.NewIdentityClient(conn).Probe(ctx, &csi.ProbeRequest{}); err != nil || !r.GetReady().GetValue() {
		t.Errorf("probe: got %v, %v", r, err)
	}
	_, err = csi.NewControllerClient(conn).ListVolumes(ctx, &csi.ListVolumesRequest{})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "east") {
		t.Errorf("a list: got %v", err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAControllersConfigurationIsCheckedWithoutServing(t *testing.T) {
	file := controllerConfig(t)
	if code := run([]string{"controller", "--check", "--config", file}); code != 0 {
		t.Errorf("a good one: exit code %d", code)
	}
	write(t, file, "cluster: c\ncolor: red\n")
	if code := run([]string{"controller", "--check", "--config", file}); code != exitUsage {
		t.Errorf("an unknown key: exit code %d", code)
	}
}

// TestOnlyStaticVolumesAreListedFromTheCluster: backends list the others.
func TestOnlyStaticVolumesAreListedFromTheCluster(t *testing.T) {
	got := staticOf([]cluster.Volume{
		{Handle: "a", Attributes: map[string]string{"iqn": "iqn.2000-01.com.example:a"}, Size: 7, Nodes: []string{"n"}},
		{Handle: "1.east.fast.x", Attributes: map[string]string{"transport": "iscsi"}}})
	if len(got) != 1 || got[0].Handle != "a" || got[0].Size != 7 || len(got[0].Nodes) != 1 {
		t.Errorf("got %+v", got)
	}
}

// TestAControllerOfAClusterThatIsAwayAnswers, and says what it waits for.
func TestAControllerOfAClusterThatIsAwayAnswers(t *testing.T) {
	held, err := port.Hold()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Close() })
	f := controllerFlags{kubeconfig: filepath.Join(t.TempDir(), "config")}
	write(t, f.kubeconfig, `{"apiVersion": "v1", "kind": "Config", "current-context": "x", "clusters": [{"name": "c", "cluster": {"server": "https://`+
		held.Addr()+`"}}], "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {}}]}`)
	var c driver.Controller
	client, err := f.connect()
	if err != nil {
		t.Fatal(err)
	}
	follow, err := f.follow(&c, client, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); follow(ctx) }()
	if _, err := c.HasNode(ctx, "n"); err == nil || !strings.Contains(err.Error(), "not known yet") {
		t.Errorf("a node: %v", err)
	}
	if all, err := c.Static(ctx); err == nil {
		t.Errorf("a list: %v", all)
	}
	stop()
	<-ended
}
