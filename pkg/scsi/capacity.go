package scsi

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Capacity is what READ CAPACITY says.
type Capacity struct {
	LastLBA   uint64
	BlockSize uint32 // bytes, a power of two of at least 512
	// PhysicalExp: one physical block is 2^PhysicalExp logical ones.
	PhysicalExp   uint8
	LowestAligned uint16 // first LBA at a physical block's start
	LBPME         bool   // thin provisioning is managed
	LBPRZ         bool   // unmapped blocks read as zeroes
}

var errShortCapacity = errors.New("scsi: READ CAPACITY data is cut short")

// Size is the capacity in bytes. Parsers refuse what would not fit.
func (c *Capacity) Size() uint64 { return (c.LastLBA + 1) * uint64(c.BlockSize) }

// PhysicalBlock is the physical block size in bytes.
func (c *Capacity) PhysicalBlock() uint32 { return c.BlockSize << min(c.PhysicalExp, 8) }

func (c *Capacity) check() error {
	bs := c.BlockSize
	if bs < 512 || bs > maxBlockSize || bs&(bs-1) != 0 {
		return fmt.Errorf("scsi: READ CAPACITY: block size %d is not a power of two of 512..%d bytes", bs, maxBlockSize)
	}
	if c.LastLBA >= 1<<63/uint64(bs) {
		return fmt.Errorf("scsi: READ CAPACITY: last block %#x of %d bytes is beyond 2^63 bytes", c.LastLBA, bs)
	}
	return nil
}

// ParseCapacity10 reads READ CAPACITY(10). saturated says that the size does
// not fit and READ CAPACITY(16) must be asked.
func ParseCapacity10(b []byte) (c Capacity, saturated bool, err error) {
	if len(b) < 8 {
		return c, false, errShortCapacity
	}
	last := binary.BigEndian.Uint32(b)
	c.LastLBA, c.BlockSize = uint64(last), binary.BigEndian.Uint32(b[4:])
	return c, last == 0xffffffff, c.check()
}

// ParseCapacity16 reads READ CAPACITY(16); 12 bytes are enough, what is
// missing after them is zero.
func ParseCapacity16(b []byte) (c Capacity, err error) {
	if len(b) < 12 {
		return c, errShortCapacity
	}
	var f [16]byte
	copy(f[:], b)
	c.LastLBA, c.BlockSize = binary.BigEndian.Uint64(f[:]), binary.BigEndian.Uint32(f[8:])
	c.PhysicalExp = f[13] & 0x0f
	c.LBPME, c.LBPRZ = f[14]&0x80 != 0, f[14]&0x40 != 0
	c.LowestAligned = binary.BigEndian.Uint16(f[14:]) & 0x3fff
	return c, c.check()
}

// Append10 appends READ CAPACITY(10) data, saturated where it must be.
func (c *Capacity) Append10(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(min(c.LastLBA, 0xffffffff)))
	return binary.BigEndian.AppendUint32(b, c.BlockSize)
}

// Append16 appends READ CAPACITY(16) data, 32 bytes.
func (c *Capacity) Append16(b []byte) []byte {
	var f [32]byte
	binary.BigEndian.PutUint64(f[:], c.LastLBA)
	binary.BigEndian.PutUint32(f[8:], c.BlockSize)
	f[13] = c.PhysicalExp & 0x0f
	binary.BigEndian.PutUint16(f[14:], c.LowestAligned&0x3fff)
	if c.LBPME {
		f[14] |= 0x80
	}
	if c.LBPRZ {
		f[14] |= 0x40
	}
	return append(b, f[:]...)
}

// ParseReportLUNs appends the entries of a REPORT LUNS answer to dst. It takes
// what is both claimed and there; total is the length of the whole
// list in bytes, header included: larger than len(b) means ask again.
func ParseReportLUNs(dst []LUN, b []byte) (luns []LUN, total int, err error) {
	if len(b) < 8 {
		return dst, 0, errors.New("scsi: REPORT LUNS data is shorter than 8 bytes")
	}
	claimed := binary.BigEndian.Uint32(b)
	n := min(int(claimed), len(b)-8, MaxLUNs*8) / 8
	for i := range n {
		dst = append(dst, LUNFromBytes(b[8+8*i:]))
	}
	return dst, 8 + int(min(claimed, MaxLUNs*8)), nil
}

// AppendReportLUNs appends REPORT LUNS data.
func AppendReportLUNs(b []byte, luns ...LUN) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(8*len(luns)))
	b = append(b, 0, 0, 0, 0)
	for _, l := range luns {
		b = binary.BigEndian.AppendUint64(b, uint64(l))
	}
	return b
}
