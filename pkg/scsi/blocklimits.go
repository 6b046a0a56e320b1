package scsi

import "encoding/binary"

// BlockLimits is VPD page B0h (SBC-3 6.5.3). Zero means "not reported".
// Counts are logical blocks.
type BlockLimits struct {
	WriteSameNonZero bool // WSNZ: WRITE SAME of 0 blocks is refused
	// MaxCompareWrite is the most blocks of one COMPARE AND WRITE; 0: not offered.
	MaxCompareWrite uint8
	OptimalGranule  uint16
	MaxTransfer     uint32
	OptimalTransfer uint32
	// MaxUnmap and MaxUnmapDescriptors: 0xffffffff is "no limit", 0 "no UNMAP".
	MaxUnmap            uint32
	MaxUnmapDescriptors uint32
	UnmapGranule        uint32
	// UnmapAlign is valid when HasUnmapAlign.
	UnmapAlign    uint32
	HasUnmapAlign bool
	MaxWriteSame  uint64
}

// ParseBlockLimits reads VPD page B0h; fields past the end of a short (SBC-2)
// page are zero.
func ParseBlockLimits(b []byte) (l BlockLimits, err error) {
	body, err := vpd(b, PageBlockLimits)
	if err != nil {
		return l, err
	}
	var f [60]byte
	copy(f[:], body)
	l.WriteSameNonZero = f[0]&1 != 0
	l.MaxCompareWrite = f[1]
	l.OptimalGranule = binary.BigEndian.Uint16(f[2:])
	l.MaxTransfer = binary.BigEndian.Uint32(f[4:])
	l.OptimalTransfer = binary.BigEndian.Uint32(f[8:])
	l.MaxUnmap = binary.BigEndian.Uint32(f[16:])
	l.MaxUnmapDescriptors = binary.BigEndian.Uint32(f[20:])
	l.UnmapGranule = binary.BigEndian.Uint32(f[24:])
	align := binary.BigEndian.Uint32(f[28:])
	l.HasUnmapAlign, l.UnmapAlign = align>>31 != 0, align&^(1<<31)
	l.MaxWriteSame = binary.BigEndian.Uint64(f[32:])
	return l, nil
}

// Append appends VPD page B0h, 64 bytes.
func (l *BlockLimits) Append(b []byte) []byte {
	var f [60]byte
	if l.WriteSameNonZero {
		f[0] = 1
	}
	f[1] = l.MaxCompareWrite
	binary.BigEndian.PutUint16(f[2:], l.OptimalGranule)
	binary.BigEndian.PutUint32(f[4:], l.MaxTransfer)
	binary.BigEndian.PutUint32(f[8:], l.OptimalTransfer)
	binary.BigEndian.PutUint32(f[16:], l.MaxUnmap)
	binary.BigEndian.PutUint32(f[20:], l.MaxUnmapDescriptors)
	binary.BigEndian.PutUint32(f[24:], l.UnmapGranule)
	if l.HasUnmapAlign {
		binary.BigEndian.PutUint32(f[28:], l.UnmapAlign|1<<31)
	}
	binary.BigEndian.PutUint64(f[32:], l.MaxWriteSame)
	at := len(b)
	return endVPD(append(beginVPD(b, PageBlockLimits), f[:]...), at)
}

// ParseRotationRate reads the medium rotation rate of VPD page B1h: 0 not
// reported, 1 solid state, else revolutions per minute.
func ParseRotationRate(b []byte) (uint16, error) {
	body, err := vpd(b, PageCharacteristics)
	if err != nil || len(body) < 2 {
		return 0, err
	}
	return binary.BigEndian.Uint16(body), nil
}

// AppendRotationRate appends VPD page B1h, 64 bytes.
func AppendRotationRate(b []byte, rpm uint16) []byte {
	var f [60]byte
	binary.BigEndian.PutUint16(f[:], rpm)
	at := len(b)
	return endVPD(append(beginVPD(b, PageCharacteristics), f[:]...), at)
}

// Provisioning is VPD page B2h (SBC-3 6.5.4).
type Provisioning struct {
	LBPU    bool // UNMAP works
	LBPWS   bool // WRITE SAME(16) with UNMAP works
	LBPWS10 bool // WRITE SAME(10) with UNMAP works
	LBPRZ   bool // unmapped blocks read as zeroes
	Kind    byte // 0 not reported or full, 1 resource, 2 thin
	Anchor  bool
}

// ParseProvisioning reads VPD page B2h.
func ParseProvisioning(b []byte) (p Provisioning, err error) {
	body, err := vpd(b, PageProvisioning)
	if err != nil {
		return p, err
	}
	var f [4]byte
	copy(f[:], body)
	return Provisioning{
		LBPU: f[1]&0x80 != 0, LBPWS: f[1]&0x40 != 0, LBPWS10: f[1]&0x20 != 0,
		// SBC-4 made LBPRZ three bits: xx1b still is "reads as zeroes".
		LBPRZ: f[1]&0x04 != 0, Anchor: f[1]&0x02 != 0, Kind: f[2] & 7,
	}, nil
}

// Append appends VPD page B2h, 8 bytes.
func (p *Provisioning) Append(b []byte) []byte {
	var bits byte
	for _, f := range [...]struct {
		on  bool
		bit byte
	}{{p.LBPU, 0x80}, {p.LBPWS, 0x40}, {p.LBPWS10, 0x20}, {p.LBPRZ, 0x04}, {p.Anchor, 0x02}} {
		if f.on {
			bits |= f.bit
		}
	}
	at := len(b)
	return endVPD(append(beginVPD(b, PageProvisioning), 0, bits, p.Kind&7, 0), at)
}
