package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/csi-mpath/csi-mpath/pkg/attach/attachtest"
	"github.com/csi-mpath/csi-mpath/pkg/volume"
)

func TestNodeFlagsAreChecked(t *testing.T) {
	for args, want := range map[string]string{
		"--cluster c":   "--node-name",
		"--node-name n": "--cluster",
		"--node-name n --cluster c --attach iscsi":                 "--attach",
		"--node-name n --cluster c --registration /r":              "--kubelet-endpoint",
		"--node-name n --cluster c --max-volumes -1":               "--max-volumes",
		"--cluster c --node-name " + strings.Repeat("n", 254):      "--node-name",
		"--node-name n --cluster c --kubelet-endpoint /r/csi.sock": "--registration",
	} {
		c := nodeCommand()
		if err := c.ParseFlags(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		err := c.RunE(c, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want one about %s", args, err, want)
		}
	}
}

// dialUnix is a client of a socket.
func dialUnix(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestANodeAnswersAndRegisters(t *testing.T) {
	dir, err := os.MkdirTemp("", "nd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	machine, err := attachtest.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	volumes, err := volume.Open(volume.Config{State: filepath.Join(dir, "v"), Boot: "b", Devices: machine, Mounts: machine.Host})
	if err != nil {
		t.Fatal(err)
	}
	f := &nodeFlags{name: "n1", cluster: "c", endpoint: "unix://" + dir + "/csi", registration: dir, kubeletEndpoint: "/host/csi.sock"}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.serve(ctx, volumes) }()
	wait := grpc.WaitForReady(true)
	info, err := csi.NewNodeClient(dialUnix(t, dir+"/csi")).NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{}, wait)
	if err != nil || info.NodeId != "n1" {
		t.Errorf("%v, %v", info, err)
	}
	p, err := registration.NewRegistrationClient(dialUnix(t, dir+"/csi-mpath.io-reg.sock")).GetInfo(t.Context(), &registration.InfoRequest{}, wait)
	if err != nil || p.Endpoint != "/host/csi.sock" {
		t.Errorf("%v, %v", p, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := volumes.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
