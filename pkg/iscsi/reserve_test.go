package iscsi

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// The kernel's target without the directory for registrations: it makes them, and
// answers with an error.
func TestARegistrationThatIsThereInSpiteOfAnErrorCounts(t *testing.T) {
	for _, does := range []bool{true, false} {
		f := newFake(t)
		var registered []uint64
		f.handle = func(c *fakeConn, h *pdu.SCSICommand, data []byte) bool {
			switch h.CDB[0] {
			case scsi.OpPersistentReserveOut:
				old, key, _, _ := scsi.ParseReserveParam(data)
				if does && key == 0 {
					registered = slices.DeleteFunc(registered, func(k uint64) bool { return k == old })
				} else if does {
					registered = []uint64{key}
				}
				s := scsi.Sense{Key: scsi.KeyNotReady, ASC: 0x08}.AppendFixed([]byte{0, scsi.SenseLen})
				c.send(&pdu.SCSIResponse{ITT: h.ITT, Status: scsi.StatusCheckCondition, Window: c.window(true)}, s)
			case scsi.OpPersistentReserveIn:
				b := binary.BigEndian.AppendUint32(make([]byte, 4), uint32(8*len(registered)))
				for _, k := range registered {
					b = binary.BigEndian.AppendUint64(b, k)
				}
				c.data(h, b)
			default:
				return false
			}
			return true
		}
		s, err := Dial(testCtx(t), f.config())
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range [][2]uint64{{0, 7}, {7, 0}} {
			if !does {
				f.mu.Lock()                     // handlers hold it
				registered = []uint64{7 - k[1]} // what is not wanted
				f.mu.Unlock()
			}
			if err := s.Reserve(testCtx(t), 0, scsi.ActionRegisterAndIgnore, 0, k[0], k[1]); (err == nil) != does {
				t.Errorf("the target does it: %v; %d to %d: %v", does, k[0], k[1], err)
			}
		}
		s.Abort(errTest)
	}
}
