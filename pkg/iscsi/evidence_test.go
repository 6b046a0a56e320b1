package iscsi

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// attend makes a fake answer the first command of op with a unit attention.
func attend(f *fake, op byte, sense scsi.Sense) {
	usual, told := f.handle, false
	f.handle = func(c *fakeConn, h *pdu.SCSICommand, data []byte) bool {
		if d, _, _ := scsi.DecodeCDB(h.CDB[:]); d.Op != op || told {
			return usual(c, h, data)
		}
		told = true
		c.send(&pdu.SCSIResponse{ITT: h.ITT, Status: scsi.StatusCheckCondition, Window: c.window(true)},
			sense.AppendFixed([]byte{0, scsi.SenseLen}))
		return true
	}
}

func TestEvidenceThatAControlCommandMeetsIsTheUnits(t *testing.T) {
	f := newFake(t)
	f.unit(func(scsi.Command) bool { return false })
	attend(f, scsi.OpRead16, scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x3f, ASCQ: 0x0e})
	s := f.dial(f.config())
	l := s.LUN(1<<48, 1, newWaiter())
	var cdb [scsi.CDBLen]byte
	n := scsi.PutRead16(cdb[:], 0, 1, 0)
	if _, err := s.Exec(testCtx(t), 1<<48, cdb[:n], make([]byte, 512), nil); err != nil {
		t.Fatal(err)
	}
	if l.Gate() == 0 {
		t.Fatal("the unit goes on sending to what may be another one (I1)")
	}
}

func TestAControlCommandThatIsIOWaitsWhileTheUnitIsInQuestion(t *testing.T) {
	f := newFake(t)
	f.unit(func(scsi.Command) bool { return false })
	var reads atomic.Int32
	usual := f.handle
	f.handle = func(c *fakeConn, h *pdu.SCSICommand, data []byte) bool {
		if d, _, _ := scsi.DecodeCDB(h.CDB[:]); d.Op == scsi.OpRead16 {
			reads.Add(1)
		}
		return usual(c, h, data)
	}
	s := f.dial(f.config())
	l := s.LUN(1<<48, 1, newWaiter())
	l.unit.Evidence(blk.IdentityChanged)
	var cdb [scsi.CDBLen]byte
	n := scsi.PutRead16(cdb[:], 0, 1, 0)
	ended, cancel := context.WithCancel(testCtx(t))
	cancel()
	if _, err := l.Exec(ended, cdb[:n], make([]byte, 512), nil); err == nil {
		t.Fatal("it was answered")
	}
	if _, err := s.Identify(testCtx(t), 1<<48); err != nil || reads.Load() != 0 {
		t.Fatalf("%v; %d reads were sent to what may be another unit", err, reads.Load())
	}
	l.Resume(l.Gate())
	if _, err := l.Exec(testCtx(t), cdb[:n], make([]byte, 512), nil); err != nil || reads.Load() == 0 {
		t.Fatalf("%v; %d reads were sent after Resume", err, reads.Load())
	}
}

func TestEvidenceOfAnEarlyResponseDoesNotWaitForThePayload(t *testing.T) {
	r := newRig(t, defaultParams())
	w, next := write(0, 64<<10), read(0, 512)
	r.submit(w)
	r.m.Gather()
	r.m.Accept(1000) // the socket took a part
	r.mustFeed(r.check(w.Tag, scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x3f, ASCQ: 0x0e}))
	r.submit(next)
	rest := r.m.Gather()
	for _, v := range rest {
		r.m.Accept(int(v.Len))
	}
	if len(r.m.Gather()) != 0 {
		t.Fatal("a command went out behind the evidence")
	}
}

func TestAnIdentificationThatFailsKeepsTheEvidenceItMet(t *testing.T) {
	f := newFake(t)
	f.unit(func(d scsi.Command) bool { return d.Op == scsi.OpReadCapacity10 || d.Op == scsi.OpServiceActionIn16 })
	attend(f, scsi.OpServiceActionIn16, scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x29, ASCQ: 0x01})
	id, err := f.dial(f.config()).Identify(testCtx(t), 1<<48)
	if err == nil || id == nil || id.Evidence&blk.CacheLost == 0 {
		t.Fatalf("%+v, %v", id, err)
	}
}
