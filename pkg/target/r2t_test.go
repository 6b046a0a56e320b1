package target

import (
	"bytes"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

func TestSeveralR2TsAreOutstandingAndTheirDataComesInOrder(t *testing.T) {
	r := newRig(t, nil)
	c := r.dial(1)
	c.more = []pdu.Pair{{Key: "MaxOutstandingR2T", Value: "3"}}
	c.mustLogin(pdu.Pair{Key: "InitialR2T", Value: "Yes"}, pdu.Pair{Key: "MaxBurstLength", Value: "4096"})
	want := pattern(5*4096 + 512)
	itt := c.command(pdu.SCSICommand{Final: true, Write: true, EDTL: uint32(len(want))},
		func(b []byte) int { return scsi.PutWrite10(b, 0, uint16(len(want)/512), 0) }, nil)
	var open []pdu.R2T
	for at, sn := uint32(0), uint32(0); at < uint32(len(want)); sn++ {
		for len(open) < 3 && len(open)*4096+int(at) < len(want) {
			p := c.r2t()
			if p.R2TSN != sn+uint32(len(open)) || int(p.Offset) != int(at)+len(open)*4096 {
				t.Fatalf("%+v", p)
			}
			open = append(open, p)
		}
		c.quiet() // no more than three
		p := open[0]
		open = open[1:]
		half := p.Length / 2
		c.dataOut(itt, p.TTT, 0, p.Offset, false, want[p.Offset:p.Offset+half])
		c.dataOut(itt, p.TTT, 1, p.Offset+half, true, want[p.Offset+half:p.Offset+p.Length])
		at += p.Length
	}
	c.good(itt)
	if got := make([]byte, len(want)); r.ram.ReadAt(got, 0) != nil || !bytes.Equal(got, want) {
		t.Error("other bytes")
	}
}

func TestDataForALaterR2TFirstIsAnError(t *testing.T) {
	r := newRig(t, nil)
	c := r.dial(1)
	c.more = []pdu.Pair{{Key: "MaxOutstandingR2T", Value: "2"}}
	c.mustLogin(pdu.Pair{Key: "InitialR2T", Value: "Yes"}, pdu.Pair{Key: "MaxBurstLength", Value: "4096"})
	itt := c.command(pdu.SCSICommand{Final: true, Write: true, EDTL: 8192}, func(b []byte) int { return scsi.PutWrite10(b, 0, 16, 0) }, nil)
	c.r2t()
	p := c.r2t()
	if c.dataOut(itt, p.TTT, 0, p.Offset, true, block(1, 8)); !c.c.Closing() {
		t.Error("taken")
	}
}
