package scsi

import (
	"encoding/binary"
	"errors"
)

// UnmapOneLen is the length of an UNMAP parameter list with one descriptor, bytes.
const UnmapOneLen = 24

// Extent is a range of logical blocks.
type Extent struct {
	LBA    uint64
	Blocks uint32
}

// PutUnmapOne writes an UNMAP parameter list of one extent to b[:UnmapOneLen]
// (SBC-3 5.28.2).
func PutUnmapOne(b []byte, e Extent) {
	b = b[:UnmapOneLen]
	clear(b)
	b[1], b[3] = UnmapOneLen-2, 16
	binary.BigEndian.PutUint64(b[8:], e.LBA)
	binary.BigEndian.PutUint32(b[16:], e.Blocks)
}

var errUnmapList = errors.New("scsi: UNMAP parameter list is cut short")

// ParseUnmap appends the extents of an UNMAP parameter list to dst. An empty
// list is legal; lengths that disagree with len(b) are cut to whole
// descriptors, as SBC-3 says.
func ParseUnmap(dst []Extent, b []byte) ([]Extent, error) {
	if len(b) == 0 {
		return dst, nil
	}
	if len(b) < 8 {
		return dst, errUnmapList
	}
	n := min(int(binary.BigEndian.Uint16(b[2:])), len(b)-8) / 16
	for i := range n {
		d := b[8+16*i:]
		dst = append(dst, Extent{binary.BigEndian.Uint64(d), binary.BigEndian.Uint32(d[8:])})
	}
	return dst, nil
}
