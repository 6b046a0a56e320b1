package nvmetcp

import (
	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/wire"
)

// form is what of a namespace's profile decides how commands are encoded. Never
// changed once published.
type form struct {
	nsid       uint32
	shift      uint8 // of the block size
	deallocate bool  // write-zeroes may deallocate
}

func newForm(p *nvme.Profile) *form {
	return &form{nsid: p.NSID, shift: p.Namespace.BlockShift, deallocate: p.Limits().ZeroUnmaps}
}

// encode fills e, and k's payload, for the command of k; x is k's.
func (f *form) encode(e *nvme.Command, k *wire.Task, x *extra) {
	c := k.Cmd
	lba, blocks := c.Off>>f.shift, c.Len>>f.shift
	var flags nvme.IOFlags
	if c.Flags&blk.FUA != 0 {
		flags = nvme.FUA
	}
	k.Out, k.Size = nil, 0
	switch c.Op {
	case blk.Read:
		*e = nvme.Read(f.nsid, lba, blocks, flags)
	case blk.Write:
		*e = nvme.Write(f.nsid, lba, blocks, flags)
		if k.Size = int(c.Len); c.Vec == nil {
			k.Out = c.Buf[:c.Len]
		}
	case blk.Flush:
		*e = nvme.Flush(f.nsid)
	case blk.Trim:
		*e = nvme.Dataset(f.nsid, 1, nvme.DatasetDeallocate)
		k.Out = nvme.Range{Blocks: blocks, LBA: lba}.Append(x.small[:0])
		k.Size = len(k.Out)
	case blk.WriteZeroes:
		if f.deallocate && c.Flags&blk.NoUnmap == 0 {
			flags |= nvme.Deallocate
		}
		*e = nvme.WriteZeroes(f.nsid, lba, blocks, flags)
	}
}
