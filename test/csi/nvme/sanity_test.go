//go:build interop

package nvme

import (
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/test/cluster"
)

func TestTheCommandsPassCSISanityOverNVMeTCP(t *testing.T) {
	cluster.OverFUSE(t).Sanity(t, backend.NVMe)
}
