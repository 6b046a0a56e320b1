package subsystem

import (
	"bytes"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
)

func TestWhatIsWrittenIsRead(t *testing.T) {
	for name, req := range map[string]pdu.ICReq{
		"plain": plain, "digests": {HeaderDigest: true, DataDigest: true, MaxR2T: 4},
		"aligned": {Align: 31, HeaderDigest: true, MaxR2T: 1},
	} {
		for _, attributes := range []uint8{0, nvme.ConnectNoFlowControl} {
			for _, split := range []int{0, 1, 7, 100} {
				t.Run(name, func(t *testing.T) {
					r := newRig(t, func(c *Config) { c.Align = 3; c.MaxC2HData = 64 << 10; c.R2TSize = 96 << 10 })
					h := r.adminOnly(1, 1, nvme.ConnectCommand{}, connectData(1))
					c := h.queue(1, 1, req, attributes)
					c.split, c.large = split, split == 7
					for i, n := range []int{512, 4096, 8192, 8704, 150 << 10, 512 << 10} {
						data := pattern(byte(i), n)
						lba := uint64(i)
						if n <= 8192 {
							c.good(c.write1(lba, data))
						}
						c.good(c.send(nvme.Write(1, lba, uint32(n/512), nvme.FUA), data))
						if !bytes.Equal(c.read1(lba, n/512), data) {
							t.Fatalf("%d bytes differ", n)
						}
					}
				})
			}
		}
	}
}

func TestADeallocationMayComeWithRoomForAllRanges(t *testing.T) {
	r := newRig(t, nil)
	c := r.host(1, 1).io
	for _, spare := range []int{0, nvme.RangeLen, (nvme.MaxRanges - 1) * nvme.RangeLen} {
		c.good(c.write1(0, pattern(1, 4096)))
		list := append(nvme.Range{LBA: 0, Blocks: 8}.Append(nil), make([]byte, spare)...)
		c.good(c.send(nvme.Dataset(1, 1, nvme.DatasetDeallocate), list))
		c.good(c.write1(16, pattern(2, 512)))
		c.good(c.start(nvme.Dataset(1, 1, nvme.DatasetDeallocate), list))
		if !bytes.Equal(c.read1(0, 8), make([]byte, 4096)) {
			t.Errorf("%d spare bytes: not deallocated", spare)
		}
	}
	short := make([]byte, nvme.RangeLen)
	c.bad(c.send(nvme.Dataset(1, 2, nvme.DatasetDeallocate), short), nvme.SGLLengthInvalid.Final())
}
