package device_test

import (
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target"
)

func TestAPathInTransitionIsNotUsed(t *testing.T) {
	r := newRig(t, 1, target.Config{})
	p, err := r.srv.ListenPortal("127.0.0.1:0", target.PortalConfig{TPGT: 2, Group: 2})
	if err != nil {
		t.Fatal(err)
	}
	r.portals = append(r.portals, p)
	r.open(r.config(), 2)
	access := func() string { return r.dev.Status().Paths[1].Access }
	r.srv.SetALUA(2, scsi.Transitioning)
	r.until("out of use", func() bool {
		r.do(blk.Write, 0, 4096, 1) // one of them meets it
		return access() == "transitioning"
	})
	r.srv.SetALUA(2, scsi.Optimized)
	r.until("used again", func() bool { return access() == "optimized" })
}
