package cluster

import (
	"os"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/test/host"
	"github.com/csi-mpath/csi-mpath/test/sanity/suite"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// OverFUSE is a cluster on this machine, which has no nbd: its volumes are files of
// an XFS of 4 GiB, which has reflinks, and are served by the embedded targets.
// CSI_MPATH_BIN names the csi-mpath to run.
func OverFUSE(t *testing.T) *Cluster {
	t.Helper()
	pool := rig.Mounted(t, "xfs", 4096)
	return Start(t, Options{Bin: os.Getenv("CSI_MPATH_BIN"), Attach: "fuse", Storage: host.Options{Pool: "directory: {path: " + pool + "}"}})
}

// Sanity runs csi-sanity over the controller and a node.
func (c *Cluster) Sanity(t *testing.T, transport backend.Transport) {
	suite.Run(t, suite.Driver{Endpoint: c.Nodes[0].Endpoint(), Controller: c.ControllerEndpoint(), Dir: c.Nodes[0].Dir,
		Backend: Backend, Pool: host.Pool, Transport: transport, Size: 64 << 20})
}
