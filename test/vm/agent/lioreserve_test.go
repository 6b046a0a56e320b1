//go:build vm

package agent

import (
	"errors"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// What static volumes rely on at the kernel's iSCSI target: of one node's sessions each
// that is registered may write (SPC-4 5.12), not only the one that reserved, as long as
// their ISIDs begin with the same four bytes.
func TestLIOLetsEachRegisteredSessionWrite(t *testing.T) {
	kmsg.Watch(t, kmsg.KeptOut, kmsg.Provoked("APTPL"))
	x, err := kindLIO.open()
	rig.Must(t, err)
	s := &server{x, t, kindLIO}
	t.Cleanup(s.clean)
	v, a := file(t), s.access(1, 1)
	s.ensure(v, a)
	c := s.connection(v, a)
	lun, err := scsi.LUNFromNumber(c.LUN)
	rig.Must(t, err)
	var written [2]byte
	var sessions [2]*iscsi.Session
	for i, p := range s.Portals() {
		sessions[i], err = iscsi.Dial(s.ctx(), iscsi.Config{Portal: p.Address, InitiatorName: a.Initiator, TargetName: c.Target, ISID: [6]byte{0x80, 0, 0, 0, 0, byte(i + 1)}})
		rig.Must(t, err)
		rig.Must(t, sessions[i].Reserve(s.ctx(), lun, scsi.ActionRegisterAndIgnore, 0, 0, uint64(i+1)))
	}
	rig.Must(t, sessions[0].Reserve(s.ctx(), lun, scsi.ActionReserve, scsi.WriteExclusiveRegistrantsOnly, 1, 0))
	for i, session := range sessions {
		for range 4 { // unit attentions come first
			var cdb [scsi.CDBLen]byte
			r, err := session.Exec(s.ctx(), lun, cdb[:scsi.PutWrite16(cdb[:], 0, 1, 0)], nil, make([]byte, 512))
			rig.Must(t, err)
			written[i] = r.Status
			if r.Status != scsi.StatusCheckCondition {
				break
			}
		}
		session.Abort(errors.New("the test is over"))
	}
	if written[0] != scsi.StatusGood || written[1] != scsi.StatusGood {
		t.Errorf("the session that reserved: status %02Xh; the other one: %02Xh", written[0], written[1])
	}
}
