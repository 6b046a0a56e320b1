package target

import (
	"encoding/binary"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// BenchmarkMachine is the target's own cost per command, 32 in a batch.
func BenchmarkMachine(b *testing.B) {
	for _, k := range []struct {
		name   string
		blocks uint32
		write  bool
	}{{"4k read", 8, false}, {"4k write", 8, true}, {"64k read", 128, false}} {
		b.Run(k.name, func(b *testing.B) { benchMachine(b, k.blocks, k.write) })
	}
}

func benchMachine(b *testing.B, blocks uint32, write bool) {
	r := newRig(&testing.T{}, nil)
	c := r.session(1, 1)
	p := pdu.SCSICommand{Final: true, Read: !write, Write: write, EDTL: blocks * 512}
	var data []byte
	if write {
		p.DataLen = int(p.EDTL)
		data = block(1, int(blocks))
		scsi.PutWrite16(p.CDB[:], 0, blocks, 0)
	} else {
		scsi.PutRead16(p.CDB[:], 0, blocks, 0)
	}
	one := c.pdu(p.Put, data)
	var batch []byte
	for range 32 {
		batch = append(batch, one...)
	}
	var out Batch
	b.SetBytes(int64(p.EDTL))
	b.ReportAllocs()
	for n := 0; n < b.N; n += 32 {
		for i := range uint32(32) {
			h := batch[int(i)*len(one):]
			binary.BigEndian.PutUint32(h[16:], i)
			binary.BigEndian.PutUint32(h[24:], c.cmdSN)
			c.cmdSN++
		}
		c.c.Input(epoch, batch)
		for c.c.Take(&out) {
			out.Vectors()
			out.Reset()
		}
		c.m.Dirty()
	}
}
