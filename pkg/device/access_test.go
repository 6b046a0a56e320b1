package device_test

import (
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/datapath"
)

func TestAPathInTransitionIsNotUsed(t *testing.T) {
	overBoth(t, func(t *testing.T, over kind) {
		r := over(t, 2)
		r.open(r.config(), 2)
		access := func() string { return r.dev.Status().Paths[1].Access }
		r.setAccess(1, datapath.Transitioning)
		r.until("out of use", func() bool {
			r.do(blk.Write, 0, 4096, 1) // one of them meets it
			return access() == "transitioning"
		})
		r.setAccess(1, datapath.Optimized)
		r.until("used again", func() bool { return access() == "optimized" })
	})
}
