package scsi

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// Profile is everything one identification of a logical unit through one path
// learns. The initiator fills it; nobody changes it after.
type Profile struct {
	Target string // iSCSI name of the target
	LUN    LUN
	Inquiry
	Serial string   // unit serial number (VPD 80h)
	Device Identity // see SetDeviceID; its Serial is empty
	Capacity
	Caching
	HasLimits bool // VPD B0h was there
	BlockLimits
	Provisioning
	Rotation uint16 // ParseRotationRate
	// RelativePort and Group of the target port this path uses (VPD 83h); 0 when unknown.
	RelativePort, Group uint16
	Groups              PortGroups
}

// Identity is what makes a logical unit that one and no other (I1): compare
// with ==. Designators are those of the logical unit itself, in lower-case hex
// (SCSI name: as text); empty when not reported.
type Identity struct {
	NAA, EUI, Name, T10 string
	Serial              string
}

// SetDeviceID takes the designators of VPD page 83h. Of several of one type
// the smallest counts, so that their order does not matter.
func (p *Profile) SetDeviceID(ds []Designator) {
	var id Identity
	for _, d := range ds {
		switch {
		case d.Association == OfLUN:
			id.take(d)
		case d.Association == OfPort && len(d.ID) == 4 && d.Type == DesignRelativePort:
			p.RelativePort = binary.BigEndian.Uint16(d.ID[2:])
		case d.Association == OfPort && len(d.ID) == 4 && d.Type == DesignPortGroup:
			p.Group = binary.BigEndian.Uint16(d.ID[2:])
		}
	}
	p.Device = id
}

// Identity is what the unit is known by (I1): its designators and unit serial number.
func (p *Profile) Identity() Identity {
	id := p.Device
	id.Serial = p.Serial
	return id
}

func (i *Identity) take(d Designator) {
	v := hex.EncodeToString(d.ID)
	var f *string
	switch d.Type {
	case DesignNAA:
		f = &i.NAA
	case DesignEUI64:
		f = &i.EUI
	case DesignSCSIName:
		f, v = &i.Name, text(d.ID)
	case DesignT10Vendor:
		f = &i.T10
	default:
		return
	}
	if v != "" && strings.Trim(v, "0") != "" && (*f == "" || v < *f) {
		*f = v
	}
}

// Weak reports that nothing but a vendor's own string, or nothing at all,
// names the unit: two units may share it.
func (i Identity) Weak() bool { return i.NAA == "" && i.EUI == "" && i.Name == "" }

// String is the strongest designator as a wwid: naa.…, eui.…, the SCSI name, or t10.….
func (i Identity) String() string {
	switch {
	case i.NAA != "":
		return "naa." + i.NAA
	case i.EUI != "":
		return "eui." + i.EUI
	case i.Name != "":
		return i.Name
	case i.T10 != "":
		return "t10." + i.T10
	}
	return "unidentified"
}

// Matches reports whether wwid, as a user writes it, is one of the
// designators: naa.HEX, eui.HEX, t10.HEX, a SCSI name, bare hex with or
// without 0x, or the form of udev and multipath with a leading 3 (NAA) or 2 (EUI).
func (i Identity) Matches(wwid string) bool {
	w := strings.ToLower(strings.TrimSpace(wwid))
	w = strings.TrimPrefix(w, "0x")
	if w == "" {
		return false
	}
	for _, v := range [...]struct{ prefix, udev, id string }{
		{"naa.", "3", i.NAA}, {"eui.", "2", i.EUI}, {"t10.", "1", i.T10}} {
		if v.id != "" && (w == v.id || w == v.prefix+v.id || w == v.udev+v.id) {
			return true
		}
	}
	return i.Name != "" && w == strings.ToLower(i.Name)
}

// SameVolume returns nil when q, seen through another path or later, is the
// same volume as p (I1), else an error that says what differs. Capacity is
// left to the caller: a larger one on a staged device is growth.
func (p *Profile) SameVolume(q *Profile) error {
	want, got := p.Identity(), q.Identity()
	switch {
	case p.Target != q.Target:
		return fmt.Errorf("target name is %s, want %s", q.Target, p.Target)
	case want != got:
		return fmt.Errorf("device is %s serial %q, want %s serial %q", got, got.Serial, want, want.Serial)
	case p.BlockSize != q.BlockSize:
		return fmt.Errorf("block size is %d bytes, want %d", q.BlockSize, p.BlockSize)
	}
	return nil
}

// ErrNoUnit: the target has no logical unit of that number.
var ErrNoUnit = errors.New("the target has no such logical unit")

// Check refuses a unit that cannot serve as a disk.
func (p *Profile) Check() error {
	if p.Qualifier != 0 {
		return fmt.Errorf("LUN %s: %w (peripheral qualifier %d)", p.LUN, ErrNoUnit, p.Qualifier)
	}
	if p.DeviceType != 0 {
		return fmt.Errorf("LUN %s: device type %02Xh is not a disk", p.LUN, p.DeviceType)
	}
	if p.BlockSize == 0 {
		return errors.New("scsi: the capacity is not known")
	}
	return nil
}

// UseUnmap reports whether a trim is sent as UNMAP; if not and UseWriteSame,
// as WRITE SAME(16) with UNMAP.
func (p *Profile) UseUnmap() bool {
	return p.LBPME && p.BlockLimits.MaxUnmap > 0 && p.MaxUnmapDescriptors > 0 && (p.LBPU || !p.LBPWS)
}

// UseWriteSame reports whether WRITE SAME(16) is offered.
func (p *Profile) UseWriteSame() bool { return p.LBPWS || p.MaxWriteSame > 0 }

// Limits is what the datapath needs of the profile.
func (p *Profile) Limits() blk.Limits {
	bs := uint64(p.BlockSize)
	l := blk.Limits{
		BlockSize: p.BlockSize, PhysicalBlock: p.PhysicalBlock(), Size: p.Size(),
		OptimalIO:    clamp32(uint64(p.OptimalTransfer) * bs),
		MaxTransfer:  clamp32(uint64(p.MaxTransfer) * bs),
		UnmapGranule: clamp32(uint64(p.BlockLimits.UnmapGranule) * bs),
		WriteCache:   p.WCE, FUA: p.DPOFUA, ReadOnly: p.ReadOnly,
	}
	if p.UseWriteSame() {
		l.MaxZero = min(p.MaxWriteSame, MaxUnmapBlocks) * bs
		if l.MaxZero == 0 {
			l.MaxZero = unreportedWriteSame
		}
		l.ZeroUnmaps = p.LBPWS && p.zeroesAfterUnmap()
	}
	switch {
	case p.UseUnmap():
		l.MaxUnmap = uint64(p.BlockLimits.MaxUnmap) * bs
	case p.LBPME && p.LBPWS:
		l.MaxUnmap = l.MaxZero
	}
	return l
}

func (p *Profile) zeroesAfterUnmap() bool { return p.Capacity.LBPRZ || p.Provisioning.LBPRZ }

// clamp32 fits a byte count into the 32 bits of blk.Limits, keeping a multiple
// of any block size.
func clamp32(n uint64) uint32 { return uint32(min(n, 1<<31)) }
