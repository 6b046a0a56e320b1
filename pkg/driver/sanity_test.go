package driver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"google.golang.org/grpc"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// aNode is as much of a node as the controller's tests ask for.
type aNode struct{ csi.UnimplementedNodeServer }

func (aNode) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: "node-1"}, nil
}

func (aNode) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

func (aNode) NodeUnpublishVolume(context.Context, *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (aNode) NodeUnstageVolume(context.Context, *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	return &csi.NodeUnstageVolumeResponse{}, nil
}

func (aNode) NodePublishVolume(context.Context, *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	return &csi.NodePublishVolumeResponse{}, nil
}

// ids are in the form of this driver, of things that are not there.
type ids struct{ sanity.DefaultIDGenerator }

func (ids) GenerateUniqueValidVolumeID() string {
	return "1.east.fast." + backend.ObjectName(backend.VolumeObject, "nobody", fmt.Sprint(rand.Uint64()))
}

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

// TestTheControllerPassesCSISanity runs those of csi-sanity's tests that are about
// the controller and the identity, at a storage host over mutual TLS.
func TestTheControllerPassesCSISanity(t *testing.T) {
	c := overAgent(t)
	c.HasNode = func(_ context.Context, node string) (bool, error) { return node == "node-1", nil }
	dir := shortDir(t)
	socket := filepath.Join(dir, "s")
	l, err := Listen("unix://" + socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, l, func(s *grpc.Server) {
			csi.RegisterIdentityServer(s, &Identity{Version: "1", Backends: c.Backends})
			csi.RegisterControllerServer(s, c)
			csi.RegisterNodeServer(s, aNode{})
		}, nil)
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	config := sanity.NewTestConfig()
	config.Address, config.IDGen, config.IdempotentCount = "unix://"+socket, ids{}, 3
	config.TargetPath, config.StagingPath = filepath.Join(dir, "t"), filepath.Join(dir, "g")
	config.TestVolumeSize, config.TestVolumeExpandSize = 4*mib, 8*mib
	config.TestVolumeParameters = map[string]string{"backend": "east", "pool": "fast", "minPaths": "2"}
	config.TestVolumeMutableParameters = map[string]string{"mergeDeadline": "auto"}
	sanity.GinkgoTest(&config)
	suite, reporter := ginkgo.GinkgoConfiguration()
	suite.FocusStrings = []string{`\[Controller Server\]`, `Identity`}
	suite.SkipStrings = []string{`Node Service`}
	gomega.RegisterFailHandler(ginkgo.Fail)
	if !ginkgo.RunSpecs(t, "the controller", suite, reporter) {
		t.Error("csi-sanity found something wrong")
	}
}
