package scsi

import (
	"encoding/binary"
	"errors"
)

// LBAStatus is one descriptor of GET LBA STATUS (SBC-3 5.4).
type LBAStatus struct {
	LBA    uint64
	Blocks uint32
	// Hole: the blocks are deallocated.
	Hole bool
}

var errLBAStatus = errors.New("scsi: GET LBA STATUS data is cut short")

// AppendLBAStatus appends GET LBA STATUS parameter data.
func AppendLBAStatus(b []byte, list ...LBAStatus) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(4+16*len(list)))
	b = append(b, 0, 0, 0, 0)
	for _, s := range list {
		b = binary.BigEndian.AppendUint64(b, s.LBA)
		b = binary.BigEndian.AppendUint32(b, s.Blocks)
		var p byte
		if s.Hole {
			p = 1
		}
		b = append(b, p, 0, 0, 0)
	}
	return b
}

// ParseLBAStatus appends the descriptors to dst that are both claimed and there.
// Anchored blocks (status 2) are no hole.
func ParseLBAStatus(dst []LBAStatus, b []byte) ([]LBAStatus, error) {
	if len(b) < 8 {
		return dst, errLBAStatus
	}
	n := min(int(binary.BigEndian.Uint32(b))-4, len(b)-8) / 16
	for i := range max(n, 0) {
		d := b[8+16*i:]
		dst = append(dst, LBAStatus{binary.BigEndian.Uint64(d), binary.BigEndian.Uint32(d[8:]), d[12]&0x0f == 1})
	}
	return dst, nil
}
