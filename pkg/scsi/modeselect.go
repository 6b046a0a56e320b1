package scsi

import (
	"encoding/binary"
	"errors"
)

// Control is the control mode page (SPC-4 7.5.8).
type Control struct {
	DescriptorSense bool // D_SENSE
	SWP             bool // software write protect
	// Reordering: SIMPLE tasks may be executed in any order.
	Reordering bool
	// BusyTimeout is how long the unit may answer BUSY, in 100 ms; 0xffff is for ever.
	BusyTimeout uint16
}

// Page is the control mode page, 12 bytes.
func (c *Control) Page() []byte {
	p := make([]byte, 12)
	p[0], p[1] = ModeControl, 10
	if c.DescriptorSense {
		p[2] |= 0x04
	}
	if c.Reordering {
		p[3] |= 0x10
	}
	if c.SWP {
		p[4] |= 0x08
	}
	binary.BigEndian.PutUint16(p[8:], c.BusyTimeout)
	return p
}

var (
	errModeList = errors.New("scsi: MODE SELECT parameter list is cut short")
	errModeDesc = errors.New("scsi: MODE SELECT with block descriptors")
)

// ParseModeSelect appends the whole mode pages, header included, of a MODE
// SELECT(6) or, with ten, (10) parameter list to dst. Block descriptors are an
// error: nobody changes a block size here.
func ParseModeSelect(dst [][]byte, b []byte, ten bool) ([][]byte, error) {
	hdr := 4
	if ten {
		hdr = 8
	}
	if len(b) == 0 {
		return dst, nil
	}
	if len(b) < hdr {
		return dst, errModeList
	}
	desc := int(b[3])
	if ten {
		desc = int(binary.BigEndian.Uint16(b[6:]))
	}
	if desc != 0 {
		return dst, errModeDesc
	}
	for b = b[hdr:]; len(b) > 0; {
		if len(b) < 2 {
			return dst, errModeList
		}
		n := 2 + int(b[1])
		if b[0]&0x40 != 0 { // subpage format
			if len(b) < 4 {
				return dst, errModeList
			}
			n = 4 + int(binary.BigEndian.Uint16(b[2:]))
		}
		if len(b) < n {
			return dst, errModeList
		}
		dst = append(dst, b[:n:n])
		b = b[n:]
	}
	return dst, nil
}
