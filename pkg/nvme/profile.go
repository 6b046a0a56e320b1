package nvme

import (
	"errors"
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// Profile is everything one identification of a namespace through one
// controller learns. The host fills it; nobody changes it after.
type Profile struct {
	Subsystem string // NQN that was asked for in Connect
	NSID      uint32
	Controller
	Caps          Caps
	CommandLimits CommandLimits
	Namespace     Namespace
	ID            Identity
	// CommandSet is CSI: 0 NVM.
	CommandSet uint8
	CacheOff   bool // FeatureWriteCache says that the volatile cache is off
	// State of the namespace's ANA group through this controller; Optimized where
	// the controller reports no ANA.
	State AccessState
}

// Identity is what the namespace is known by (I1).
func (p *Profile) Identity() Identity { return p.ID }

// SameVolume returns nil when q, seen through another controller or later, is
// the same volume as p (I1), else an error that says what differs. Capacity is
// left to the caller: a larger one on a staged device is growth. Of the
// identifiers, all that both give must agree, and one must be in both.
func (p *Profile) SameVolume(q *Profile) error {
	switch {
	case p.Subsystem != q.Subsystem:
		return fmt.Errorf("subsystem is %s, want %s", q.Subsystem, p.Subsystem)
	case p.NSID != q.NSID:
		return fmt.Errorf("namespace number is %d, want %d", q.NSID, p.NSID)
	case p.ID != q.ID:
		return fmt.Errorf("namespace is %s, want %s", q.ID.all(), p.ID.all())
	case p.Namespace.BlockShift != q.Namespace.BlockShift:
		return fmt.Errorf("block size is %d bytes, want %d", q.Namespace.BlockSize(), p.Namespace.BlockSize())
	}
	return nil
}

// all lists the identifiers, for errors.
func (i Identity) all() string {
	return fmt.Sprintf("{UUID %s, NGUID %s, EUI-64 %s}", or(i.UUID), or(i.NGUID), or(i.EUI64))
}

func or(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// Check refuses a namespace that cannot serve as a disk.
func (p *Profile) Check() error {
	switch {
	case p.CommandSet != 0:
		return fmt.Errorf("namespace %d: I/O command set %d is not NVM", p.NSID, p.CommandSet)
	case p.Namespace.BlockShift == 0:
		return errors.New("nvme: the capacity is not known")
	case p.Namespace.Metadata != 0 || p.Namespace.Protection != 0:
		return fmt.Errorf("namespace %d: formatted with %d bytes of metadata per block: reformat it without",
			p.NSID, p.Namespace.Metadata)
	}
	return nil
}

// Limits is what the datapath needs of the profile.
func (p *Profile) Limits() blk.Limits {
	n := &p.Namespace
	bs := uint64(n.BlockSize())
	l := blk.Limits{
		BlockSize: n.BlockSize(), PhysicalBlock: p.physicalBlock(), Size: n.Bytes(),
		MaxTransfer: uint32(min(uint64(p.MaxTransfer(p.Caps.MinPageShift)), MaxBlocks*bs)),
		WriteCache:  p.VolatileCache&1 != 0 && !p.CacheOff, FUA: true, ReadOnly: n.WriteProtected,
	}
	if n.Features&FeatureOptimal != 0 {
		l.OptimalIO = uint32(min((uint64(n.OptimalWrite)+1)*bs, 1<<maxTransferShift))
	}
	if p.ONCS&ONCSWriteZeroes != 0 {
		l.MaxZero = min(p.maxZero(), MaxBlocks*bs)
		l.ZeroUnmaps = n.Deallocate&DeallocateZeroes != 0 && n.Deallocate&7 == DeallocatedZero
	}
	if p.ONCS&ONCSDataset != 0 {
		l.MaxUnmap = p.maxDeallocate() * bs
		l.UnmapGranule = uint32(bs)
		if n.Features&FeatureOptimal != 0 {
			l.UnmapGranule = uint32(min((uint64(n.DeallocateGranule)+1)*bs, 1<<maxTransferShift))
		}
	}
	return l
}

// physicalBlock is the preferred write granule, as far as it is written atomically.
func (p *Profile) physicalBlock() uint32 {
	n, bs := &p.Namespace, uint64(p.Namespace.BlockSize())
	if n.Features&FeatureOptimal == 0 {
		return uint32(bs)
	}
	atomic := uint64(p.AtomicPower)
	if n.Features&FeatureAtomics != 0 {
		atomic = uint64(n.AtomicPower)
	}
	blocks := min(uint64(n.WriteGranule), atomic) + 1
	if blocks&(blocks-1) != 0 {
		return uint32(bs)
	}
	return uint32(blocks * bs)
}

// maxZero: WZSL, else MDTS, which binds Write Zeroes in editions before WZSL.
func (p *Profile) maxZero() uint64 {
	size := p.CommandLimits.WriteZeroesSize
	if size == 0 {
		size = p.MDTS
	}
	if size == 0 {
		return unreportedWriteZeroes
	}
	return 1 << min(uint(size)+uint(p.Caps.MinPageShift), maxTransferShift)
}

// maxDeallocate is the most blocks of one range that is alone in its command.
func (p *Profile) maxDeallocate() uint64 {
	n := uint64(1<<32 - 1)
	if v := p.CommandLimits.RangeBlocks; v != 0 {
		n = uint64(v)
	}
	if v := p.CommandLimits.DatasetBlocks; v != 0 {
		n = min(n, v)
	}
	return n
}
