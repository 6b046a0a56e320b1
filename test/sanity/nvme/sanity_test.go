// Package nvme runs csi-sanity with volumes over NVMe/TCP: the suite can only run once in
// a process.
package nvme

import (
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/test/sanity/whole"
)

func TestTheDriverPassesCSISanityOverNVMe(t *testing.T) { whole.Sanity(t, backend.NVMe) }
