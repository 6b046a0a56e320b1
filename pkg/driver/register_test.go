package driver

import (
	"context"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func TestTheKubeletIsToldOfTheDriver(t *testing.T) {
	socket := filepath.Join(shortDir(t), "reg")
	l, err := Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 2)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, l, func(s *grpc.Server) {
			registration.RegisterRegistrationServer(s, &Registrar{Endpoint: "/var/lib/kubelet/plugins/csi-mpath.io/csi.sock", Registered: func(err error) { told <- err }})
		}, nil)
	}()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	kubelet := registration.NewRegistrationClient(conn)
	info, err := kubelet.GetInfo(t.Context(), &registration.InfoRequest{})
	if err != nil || info.Type != "CSIPlugin" || info.Name != Name || info.Endpoint != "/var/lib/kubelet/plugins/csi-mpath.io/csi.sock" || len(info.SupportedVersions) != 1 {
		t.Errorf("%v, %v", info, err)
	}
	for _, s := range []*registration.RegistrationStatus{{PluginRegistered: true}, {Error: "no"}} {
		if _, err := kubelet.NotifyRegistrationStatus(t.Context(), s); err != nil {
			t.Error(err)
		}
		if got := <-told; (got == nil) != s.PluginRegistered {
			t.Errorf("%v: told %v", s, got)
		}
	}
	_ = conn.Close()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
