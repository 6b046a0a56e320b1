package iscsi

import (
	"math/bits"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/wire"
)

// form is what of a unit's profile decides how commands are encoded. Never
// changed once published.
type form struct {
	shift     uint8  // of the block size
	sync16    bool   // the unit is too large for SYNCHRONIZE CACHE(10)
	unmap     bool   // trim is UNMAP, else WRITE SAME with the UNMAP bit
	zeroUnmap bool   // write-zeroes may set the UNMAP bit
	zeroes    []byte // one block
}

func newForm(p *scsi.Profile) *form {
	lim := p.Limits()
	return &form{
		shift:  uint8(bits.TrailingZeros32(p.BlockSize)),
		sync16: p.LastLBA > 0xffffffff, unmap: p.UseUnmap(), zeroUnmap: lim.ZeroUnmaps,
		zeroes: make([]byte, p.BlockSize),
	}
}

// encode fills h's CDB and directions, and k.Out, for the command of k; x is k's.
func (f *form) encode(h *pdu.SCSICommand, k *wire.Task, x *extra) {
	c := k.Cmd
	lba, blocks := c.Off>>f.shift, c.Len>>f.shift
	cdb := h.CDB[:]
	var flags scsi.CDBFlags
	if c.Flags&blk.FUA != 0 {
		flags = scsi.FUA
	}
	short := blocks <= 0xffff && lba <= 0xffffffff
	k.Out, k.Size = nil, 0
	switch c.Op {
	case blk.Read:
		h.Read = true
		if short {
			scsi.PutRead10(cdb, uint32(lba), uint16(blocks), flags)
		} else {
			scsi.PutRead16(cdb, lba, blocks, flags)
		}
	case blk.Write:
		if k.Size = int(c.Len); c.Vec == nil {
			k.Out = c.Buf[:c.Len]
		}
		if short {
			scsi.PutWrite10(cdb, uint32(lba), uint16(blocks), flags)
		} else {
			scsi.PutWrite16(cdb, lba, blocks, flags)
		}
	case blk.Flush: // the whole unit: 0 blocks from 0
		if f.sync16 {
			scsi.PutSyncCache16(cdb, 0, 0, 0)
		} else {
			scsi.PutSyncCache10(cdb, 0, 0, 0)
		}
	case blk.Trim:
		f.encodeTrim(cdb, k, x, lba, blocks)
	case blk.WriteZeroes:
		flags = 0 // WRITE SAME has no FUA bit
		if f.zeroUnmap && c.Flags&blk.NoUnmap == 0 {
			flags = scsi.Unmap
		}
		// One block of zeroes instead of NDOB: every target takes it.
		scsi.PutWriteSame16(cdb, lba, blocks, flags)
		k.Out = f.zeroes
	}
	k.Size = max(k.Size, len(k.Out))
	h.Write = k.Size > 0
}

func (f *form) encodeTrim(cdb []byte, k *wire.Task, x *extra, lba uint64, blocks uint32) {
	if f.unmap {
		scsi.PutUnmap(cdb, unmapParam)
		scsi.PutUnmapOne(x.small[:], scsi.Extent{LBA: lba, Blocks: blocks})
		k.Out = x.small[:]
		return
	}
	scsi.PutWriteSame16(cdb, lba, blocks, scsi.Unmap)
	k.Out = f.zeroes
}
