package target

import (
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

func TestSimpleCommandsEndInAnyOrder(t *testing.T) {
	b := newBench(t, nil)
	c := b.session(1, 1)
	first, second := c.writeCmd(0, block(1, 1)), c.writeCmd(9, block(2, 1))
	b.has(2)
	b.work(1)
	c.good(second)
	b.work(0)
	c.good(first)
}

func TestAnOrderedCommandIsAlone(t *testing.T) {
	b := newBench(t, nil)
	c := b.session(1, 1)
	put := func(lba uint64) func(b []byte) int {
		return func(b []byte) int { return scsi.PutWrite16(b, lba, 1, 0) }
	}
	before := c.writeCmd(0, block(1, 1))
	ordered := c.command(pdu.SCSICommand{Final: true, Write: true, EDTL: 512, Attr: pdu.AttrOrdered}, put(0), block(2, 1))
	after := c.writeCmd(0, block(3, 1))
	head := c.command(pdu.SCSICommand{Final: true, Write: true, EDTL: 512, Attr: pdu.AttrHead}, put(8), block(4, 1))
	b.has(2) // before and head
	b.work(1)
	c.good(head)
	b.has(1)
	b.work(0)
	c.good(before)
	b.has(1)
	b.work(0)
	c.good(ordered)
	b.has(1)
	b.work(0)
	c.good(after)
	if b.first(0) != 3 {
		t.Errorf("block %d", b.first(0))
	}
}

func TestUnitsShareTheirJobsFairly(t *testing.T) {
	b := newBench(t, func(c *Config) {
		c.Depth = maxDepth
		for n := range uint32(serve.MaxJobs/serve.MaxUnitJobs + 1) {
			c.LUNs = append(c.LUNs, LUN{Number: n + 1, Store: plain{NewRAM(1 << 20)}})
		}
	})
	c := b.session(1, 1)
	put := func(b []byte) int { return scsi.PutWrite16(b, 0, 1, 0) }
	var last uint32
	for n := uint32(1); n <= serve.MaxJobs/serve.MaxUnitJobs+1; n++ {
		for range serve.MaxUnitJobs {
			last = c.command(pdu.SCSICommand{Final: true, Write: true, EDTL: 512, LUN: uint64(n) << 48}, put, block(1, 1))
		}
	}
	b.has(serve.MaxJobs)
	for len(b.jobs) > 0 {
		b.work(0)
	}
	for itt := uint32(1); itt <= last; itt++ {
		c.good(itt)
	}
	if b.Jobs() != 0 || b.Buffers.Held() != 0 {
		t.Errorf("%d jobs, %d bytes", b.Jobs(), b.Buffers.Held())
	}
}

func TestALongJobInMemoryStopsNobody(t *testing.T) {
	b := newBench(t, func(c *Config) { c.LUNs[0].Store = NewRAM(16 << 20) })
	b.ram = b.units[0].Store.(*RAM)
	c := b.session(1, 1)
	short := c.writeCmd(0, block(1, 1))
	b.has(0)
	c.good(short)
	zero := c.send(func(b []byte) int { return scsi.PutWriteSame16(b, 0, 16384, scsi.NDOB) }, nil)
	b.has(1)
	read, write := c.readCmd(20000, 100), c.writeCmd(0, block(3, 1)) // in turn, as they may be ORDERED
	b.has(3)
	b.work(1)
	c.good(read)
	b.work(0)
	c.good(zero)
	b.work(0)
	if c.good(write); b.first(0) != 3 {
		t.Errorf("block %d", b.first(0))
	}
	c.good(c.readCmd(0, 1)) // at once again
	b.has(0)
}
