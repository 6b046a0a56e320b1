//go:build interop

package iscsi

import (
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/test/cluster"
)

func TestTheCommandsPassCSISanityOverISCSI(t *testing.T) {
	cluster.OverFUSE(t).Sanity(t, backend.ISCSI)
}
